"""The declaration of a report: sections, each a pure query over pinned versions, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame

from platform_assets.reports.dimension import Dimension
from platform_assets.reports.files import FORMATS, FileFormat
from platform_assets.reports.sources import Sources
from quality import Suite
from streaming.base import DeclarationError, FrozenMapping, check_mapping, check_number, check_tuple
from streaming.declare import Pipeline

if TYPE_CHECKING:
    # Importing it takes a moment, which commands that draw nothing need not pay.
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Section:
    """One table of a report: `reports/<table>`. `rows` computes it in the order to print, `suite` judges it.

    The Delta table is the report; `files` are written beside it: `csv`, `parquet`, `html`. They show every value as
    it is; columns that `decimals` names, each with a number of digits after the point, are rounded to that in CSV and
    HTML.

    Raises:
        DeclarationError: there is no such file, or a number of digits is none.
    """

    table: str
    description: str
    rows: Callable[[Sources], DataFrame]
    suite: Callable[[Sources], Suite]
    files: tuple[FileFormat, ...] = ("csv",)
    decimals: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        what = f"the files of section {self.table!r}"
        check_tuple(what, self.files, str, 'a tuple, such as files=("csv", "html")')
        unknown = [format for format in self.files if format not in FORMATS]
        if unknown:
            raise DeclarationError(f"{what} have {unknown[0]!r}; there are: {', '.join(FORMATS)}.")
        of = f"decimals of section {self.table!r}"
        check_mapping(of, self.decimals, int, 'a dict from column to digits after the point, such as {"rate": 2}')
        for column, digits in self.decimals.items():
            check_number(f"{of} for {column!r}: {digits!r}", digits, "digits", least=0)
        object.__setattr__(self, "decimals", FrozenMapping(self.decimals))


@dataclass(frozen=True)
class Report:
    """A report on one pipeline; the first section carries the report's name.

    `chart` draws the sections' tables, by table name; `dimensions` are tables kept elsewhere that sections join.

    Raises:
        DeclarationError: two dimensions have one name.
    """

    pipeline: Pipeline
    description: str
    sections: tuple[Section, ...]
    chart: Callable[[Mapping[str, pa.Table]], Figure] | None = None
    dimensions: tuple[Dimension, ...] = ()

    def __post_init__(self) -> None:
        names = [dimension.name for dimension in self.dimensions]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise DeclarationError(f"report {self.name!r} has two dimensions {repeated[0]!r}; rename one.")

    @property
    def name(self) -> str:
        """A report is named after its first section."""
        return self.sections[0].table

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
from quality import Suite, operators_read, streams_read
from streaming.base import DeclarationError, FrozenMapping, check_mapping, check_number, check_tuple
from streaming.declare import Operator, Pipeline, Stream

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
            raise DeclarationError(
                f"{what} have {unknown[0]!r}; there are: {', '.join(FORMATS)}.", choices=tuple(FORMATS)
            )
        of = f"decimals of section {self.table!r}"
        check_mapping(of, self.decimals, int, 'a dict from column to digits after the point, such as {"rate": 2}')
        for column, digits in self.decimals.items():
            check_number(f"{of} for {column!r}: {digits!r}", digits, "digits", least=0)
        object.__setattr__(self, "decimals", FrozenMapping(self.decimals))


@dataclass(frozen=True)
class Report:
    """A report on one pipeline; the first section carries the report's name.

    `chart` draws the sections' tables, by table name; `dimensions` are tables kept elsewhere that sections join.
    `reads` are the operators and streams of the pipeline that sections read, all where nothing is named: what others
    hold does not keep the report back.

    Raises:
        DeclarationError: two dimensions have one name, or the pipeline does not have what is read.
    """

    pipeline: Pipeline
    description: str
    sections: tuple[Section, ...]
    chart: Callable[[Mapping[str, pa.Table]], Figure] | None = None
    dimensions: tuple[Dimension, ...] = ()
    reads: tuple[Operator | Stream, ...] = ()

    def __post_init__(self) -> None:
        check_tuple(f"reads= of report {self.name!r}", self.reads, object, "a tuple, such as reads=(orders_by_hour,)")
        operators, streams = self.pipeline.operators, self.pipeline.streams
        unknown = [read for read in self.reads if read not in operators and read not in streams]
        if unknown:
            names = [operator.name for operator in operators] + [stream.name for stream in streams]
            raise DeclarationError(
                f"report {self.name!r} reads {getattr(unknown[0], 'name', unknown[0])!r}, which pipeline "
                f"{self.pipeline.name!r} does not have as it is declared there; it has: {', '.join(names)}.",
                report=self.name,
                pipeline=self.pipeline.name,
                choices=tuple(names),
            )
        names = [dimension.name for dimension in self.dimensions]
        repeated = [name for name in names if names.count(name) > 1]
        if repeated:
            raise DeclarationError(
                f"report {self.name!r} has two dimensions {repeated[0]!r}", "rename one.", report=self.name
            )

    @property
    def operators(self) -> tuple[Operator, ...]:
        """The operators whose results it reads."""
        return operators_read(self.pipeline, self.reads)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams whose rows it reads, as they are or through operators."""
        return streams_read(self.pipeline, self.reads)

    @property
    def name(self) -> str:
        """A report is named after its first section."""
        return self.sections[0].table

"""The declaration of a report: sections, each a pure query over pinned versions, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from matplotlib.figure import Figure
from pyspark.sql import DataFrame

from platform_assets.reports.sources import Sources
from quality import Suite
from streaming.declare import Pipeline


@dataclass(frozen=True)
class Section:
    """One table of a report: `reports/<table>`. `rows` computes it in the order to print, `suite` judges it."""

    table: str
    description: str
    rows: Callable[[Sources], DataFrame]
    suite: Callable[[Sources], Suite]


@dataclass(frozen=True)
class Report:
    """A report on one pipeline; the first section carries the report's name.

    `chart` draws the sections' tables, by table name.
    """

    pipeline: Pipeline
    description: str
    sections: tuple[Section, ...]
    chart: Callable[[Mapping[str, pa.Table]], Figure] | None = None

    @property
    def name(self) -> str:
        """A report is named after its first section."""
        return self.sections[0].table

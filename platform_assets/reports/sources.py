"""What a report may read: the pinned versions, and nothing newer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_assets.reports.errors import DimensionError
from quality import Pin, Pins, QualityError, role_of_corrections, role_of_updates
from streaming.base import literal
from streaming.declare import Pipeline, Windowed
from streaming.log import valid
from streaming.tables import delta
from streaming.views import Position, current_results, late_pairs


@dataclass(frozen=True)
class Sources:
    """The tables of a pipeline, and the dimensions, at exactly the pinned versions, as batch frames."""

    spark: SparkSession
    pipeline: Pipeline
    pins: Pins
    dimensions: Mapping[str, Pin] = field(default_factory=dict)

    @cached_property
    def log(self) -> DataFrame:
        """The event log."""
        return self._read("log")

    def first(self, view: Windowed) -> DataFrame:
        """The first results of a view."""
        return self._read(view.name)

    def corrections(self, view: Windowed) -> DataFrame | None:
        """The corrections of a view, or None while there are none."""
        return self._read_if_there(role_of_corrections(view.name)) if view.corrected else None

    def updates(self, view: Windowed) -> DataFrame | None:
        """The updates of a view, or None while there are none."""
        return self._read_if_there(role_of_updates(view.name)) if view.updated else None

    def current(self, view: Windowed) -> DataFrame:
        """First results overlaid with updates and corrections."""
        return current_results(self.first(view), self.corrections(view), view, self.updates(view))

    def dimension(self, name: str) -> DataFrame:
        """A dimension of the report.

        Raises:
            DimensionError: the report declares none of that name.
        """
        if name not in self.dimensions:
            declared = ", ".join(self.dimensions) or "none"
            raise DimensionError(
                f"the report has no dimension {name!r}, it has: {declared}. Declare it: Report(..., dimensions=(...,))."
            )
        return self.dimensions[name].read(self.spark)

    @cached_property
    def footnotes(self) -> tuple[str, ...]:
        """What a reader of these numbers must know: late rows that the declaration leaves out."""
        notes = []
        for view in self.pipeline.views:
            dropped = 0 if view.corrected else late_pairs(self.log, view).count()
            if dropped:
                notes.append(f"{view.name}: {dropped:,} late rows are not counted, as declared with late='drop'.")
        return tuple(notes)

    @cached_property
    def finished_days(self) -> tuple[date, ...]:
        """The days with valid rows, oldest first, of which every window that ends with them is published as pinned."""
        pinned = [self.pins.pin(view.name) for view in self.pipeline.views]
        marks = [Position.of(delta.open_table(pin.uri, pin.version)).watermark for pin in pinned if pin is not None]
        reached = [mark for mark in marks if mark is not None]
        if len(reached) < len(marks) or not reached:
            return ()
        days = valid(self.log).select("_day").distinct()
        over = days.where(F.date_add("_day", 1).cast("timestamp") <= literal(min(reached)))
        return tuple(row["_day"] for row in over.orderBy("_day").collect())

    def _read_if_there(self, role: str) -> DataFrame | None:
        pin = self.pins.pin(role)
        return None if pin is None else pin.read(self.spark)

    def _read(self, role: str) -> DataFrame:
        pin = self.pins.pin(role)
        if pin is None:
            raise QualityError(f"{role!r} of pipeline {self.pipeline.name!r} is absent; build it, then pin again.")
        return pin.read(self.spark)

"""What a report may read: the pinned versions, and nothing newer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from functools import cached_property

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from quality import Pins, QualityError, role_of_corrections
from streaming.log import valid
from streaming.pipeline import Pipeline
from streaming.views import current
from streaming.windowed import Windowed


@dataclass(frozen=True)
class Sources:
    """The tables of a pipeline at exactly the pinned versions, as batch frames."""

    spark: SparkSession
    pipeline: Pipeline
    pins: Pins

    @cached_property
    def log(self) -> DataFrame:
        """The event log."""
        return self._read("log")

    def first(self, view: Windowed) -> DataFrame:
        """The first results of a view."""
        return self._read(view.name)

    def corrections(self, view: Windowed) -> DataFrame | None:
        """The corrections of a view, or None while there are none."""
        pin = self.pins.pin(role_of_corrections(view.name))
        return None if pin is None else pin.read(self.spark)

    def current(self, view: Windowed) -> DataFrame:
        """First results overlaid with corrections."""
        return current(self.first(view), self.corrections(view), view)

    @cached_property
    def finished_days(self) -> tuple[date, ...]:
        """The days with valid rows, oldest first, whose end the watermark had passed when the log was pinned."""
        watermark = self.log.agg(F.max("_watermark").alias("_end"))
        days = valid(self.log).select("_day").distinct()
        over = days.crossJoin(watermark).where(F.date_add("_day", 1).cast("timestamp") <= F.col("_end"))
        return tuple(row["_day"] for row in over.orderBy("_day").collect())

    def _read(self, role: str) -> DataFrame:
        pin = self.pins.pin(role)
        if pin is None:
            raise QualityError(f"{role!r} of pipeline {self.pipeline.name!r} is absent; build it, then pin again.")
        return pin.read(self.spark)

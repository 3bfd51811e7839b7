"""First results of a view as what a delivery reads, in the order in which their windows end."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, to_micros
from streaming.declare import Delivery, Windowed
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.sinks import REVISION, TIME
from streaming.tables import delta
from streaming.views import Position, read_first


class FirstOutbox(Outbox):
    """A unit is the end of a window, in microseconds: results with one end are published by the same step."""

    begin = to_micros(FIRST_INSTANT)

    def __init__(self, lake: Lake, delivery: Delivery, view: Windowed) -> None:
        self._lake = lake
        self._view = view
        # A function may give several results for one window.
        self.order = (*view.identity, *(view.values if view.function is not None else ()))

    def generation(self) -> int:
        return generation_of(delta.open_table(self._lake.first(self._view)))

    def end(self, since: int) -> int:
        watermark = Position.of(delta.open_table(self._lake.first(self._view))).watermark
        return self.begin if watermark is None else to_micros(self._view.window.closed_by(watermark)) + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        ends = F.unix_micros("window_end")
        results = read_first(spark, self._lake, self._view).where((ends >= since) & (ends < until))
        return results.withColumns({UNIT: ends, REVISION: ends, TIME: F.col("window_start")})

"""First results of a window join or a co-group as what a delivery reads, in the order in which their windows end."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, to_micros
from streaming.declare import TwoSided
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.joins import read_first
from streaming.lake import Lake
from streaming.operators import Reached
from streaming.sinks import REVISION, TIME


class TwoSidedOutbox(Outbox):
    """A unit is the end of a window, in microseconds: results with one end are published by the same step."""

    begin = to_micros(FIRST_INSTANT)

    def __init__(self, lake: Lake, operator: TwoSided) -> None:
        self._lake = lake
        self._operator = operator
        # A key and window may have several results.
        self.order = operator.columns

    def generation(self) -> int:
        return Reached.now(self._lake, self._operator).generation

    def end(self, since: int) -> int:
        watermark = Reached.now(self._lake, self._operator).watermark
        return self.begin if watermark is None else to_micros(self._operator.window.closed_by(watermark)) + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        ends = F.unix_micros("window_end")
        results = read_first(spark, self._lake, self._operator).where((ends >= since) & (ends < until))
        return results.withColumns({UNIT: ends, REVISION: ends, TIME: F.col("window_start")})

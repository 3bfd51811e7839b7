"""Rows of an event log as what a delivery reads: valid, rejected or late ones, batch by batch."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.declare import Delivery, Windowed
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.lake import Lake
from streaming.log import LogFiles, batches_after
from streaming.sinks import REVISION, TIME
from streaming.views import late_pairs, late_rows


class LogOutbox(Outbox):
    """A unit is a batch of the log; within it rows come in the order of their origins."""

    begin = 0
    of_log = True

    def __init__(self, lake: Lake, delivery: Delivery) -> None:
        self._lake = lake
        self._delivery = delivery
        self._stream = delivery.stream
        self._files = LogFiles(lake, delivery.stream)
        self._sizes: dict[int, int] = {}
        self._newest = -1
        pairs = delivery.what == "late" and isinstance(delivery.of, Windowed)
        self.order: tuple[Column | str, ...] = ("_origin", "window_start") if pairs else ("_origin",)

    def generation(self) -> int:
        # A log is never built anew.
        return 0

    def end(self, since: int) -> int:
        # What was delivered is not looked at again, however long the log is.
        self._newest = max(self._newest, since - 1)
        for batch in batches_after(self._lake, self._stream, self._newest):
            self._newest = batch.number
            self._sizes[batch.number] = batch.summary.rows
        return self._newest + 1

    def piece(self, since: int, end: int, most: int) -> int:
        for unit in [unit for unit in self._sizes if unit < since]:
            del self._sizes[unit]
        rows, until = 0, since
        while until < end and (rows == 0 or rows + self._sizes.get(until, 0) <= most):
            rows += self._sizes.get(until, 0)
            until += 1
        return until

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        named = {UNIT: F.col("_batch"), TIME: F.col(self._stream.event_time)}
        if self._delivery.what == "rejected":
            rejected = self._files.rejected(spark, since - 1, until - 1)
            return rejected.withColumns({**named, TIME: F.col("_ingested_at"), REVISION: F.col("_batch")})
        rows = self._files.with_batches(spark, since - 1, until - 1)
        if self._delivery.what == "late":
            of = self._delivery.of
            rows = late_pairs(rows, of) if isinstance(of, Windowed) else late_rows(rows, self._stream)
        return rows.withColumns({**named, REVISION: F.unix_micros(self._stream.event_time)})

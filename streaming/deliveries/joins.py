"""Pairs of a join, or rows that had none in time, as what a delivery reads."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ORIGIN
from streaming.declare import Delivery, Joined
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.joins import AT, BATCH
from streaming.lake import Lake
from streaming.operators import Reached, generation_of
from streaming.sinks import REVISION, TIME
from streaming.tables import FileIndex, delta, read_files


class JoinOutbox(Outbox):
    """A unit is a step of the join; within it rows come in the order of their origins."""

    begin = 0
    order = (ORIGIN,)

    def __init__(self, lake: Lake, delivery: Delivery, joined: Joined) -> None:
        self._uri = lake.table(joined, delivery.output)
        self._joined = joined
        self._files = FileIndex(self._uri, AT)

    def generation(self) -> int:
        return generation_of(delta.open_table(self._uri))

    def end(self, since: int) -> int:
        return Reached.of(self._joined, delta.open_table(self._uri)).batch + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        unit, table = F.col(BATCH), self._files.refresh()
        rows = read_files(spark, table, self._uri, self._files.with_batches(since - 1, until - 1))
        wanted = rows.where((unit >= since) & (unit < until))
        return wanted.withColumns({UNIT: unit, REVISION: F.unix_micros(AT), TIME: F.col(AT)})

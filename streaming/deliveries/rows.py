"""Rows of a selection or a join as what a delivery reads, batch by batch or step by step."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH
from streaming.declare import Delivery, Operator
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.lake import Lake
from streaming.operators import Reached, generation_of
from streaming.sinks import REVISION, TIME
from streaming.tables import FileIndex, delta, read_files


class RowsOutbox(Outbox):
    """A unit is a batch of the table's own sequence, of several logs a step; `order` is that of the rows of one."""

    begin = 0

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator, order: tuple[str, ...]) -> None:
        self._uri = lake.table(operator, delivery.output)
        self._operator = operator
        self._files = FileIndex(self._uri, AT)
        self.order = order

    def generation(self) -> int:
        return generation_of(delta.open_table(self._uri))

    def end(self, since: int) -> int:
        return Reached.of(self._operator, delta.open_table(self._uri)).batch + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        unit, table = F.col(BATCH), self._files.refresh()
        rows = read_files(spark, table, self._uri, self._files.with_batches(since - 1, until - 1))
        wanted = rows.where((unit >= since) & (unit < until))
        return wanted.withColumns({UNIT: unit, REVISION: F.unix_micros(AT), TIME: F.col(AT)})

"""Rows of an enrichment as what a delivery reads, step by step."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, ORIGIN
from streaming.declare import Delivery, Enriched
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.lake import Lake
from streaming.lookups import STEP, STEP_COLUMN
from streaming.sinks import REVISION, TIME
from streaming.tables import delta


class EnrichmentOutbox(Outbox):
    """A unit is a step of the enrichment; within it rows come in the order of the log."""

    begin = 0
    order = (BATCH, ORIGIN)

    def __init__(self, lake: Lake, delivery: Delivery, enriched: Enriched) -> None:
        self._uri = lake.table(enriched, delivery.output)

    def generation(self) -> int:
        return 0

    def end(self, since: int) -> int:
        table = delta.open_table(self._uri)
        newest = None if table is None else table.transaction_version(STEP)
        return self.begin if newest is None else newest + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        unit = F.col(STEP_COLUMN)
        rows = delta.read(spark, self._uri).where((unit >= since) & (unit < until))
        return rows.withColumns({UNIT: unit, REVISION: F.unix_micros(AT), TIME: F.col(AT)})

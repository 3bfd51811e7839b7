"""Results of a keyed function as results that change: late rows correct whole activity sessions of a key."""

from __future__ import annotations

from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import AT, from_micros, literal
from streaming.declare import CORRECTIONS, Delivery, Keyed
from streaming.deliveries.changing import Look, corrected_since, days_of
from streaming.deliveries.keyless import Keyless, LookAtCorrected
from streaming.deliveries.seen import Seen
from streaming.keyed import Reached, current_results, read_corrections
from streaming.lake import Lake
from streaming.operators import PinnedTables
from streaming.sinks import REASON
from streaming.spark import as_json
from streaming.tables import delta


class ChangingKeyed(Keyless):
    """First results and corrections. Results of one key and time are numbered by their values."""

    operator: Keyed
    time = AT

    def __init__(self, lake: Lake, delivery: Delivery, keyed: Keyed) -> None:
        super().__init__(lake, delivery, keyed, keyed.columns)

    def look(self) -> Look | None:
        pinned = PinnedTables.now(self.lake, self.operator)
        return None if pinned.versions[""] == delta.BEFORE else _LookAtKeyed(self, pinned)


class _LookAtKeyed(LookAtCorrected[Keyed]):
    @property
    def _watermark(self) -> datetime | None:
        return Reached.of(self._operator, self._first).watermark

    def days(self, spark: SparkSession, before: Seen) -> frozenset[date] | None:
        """Results that share a key of the delivery may be of any days."""
        if self._of.key or self._anew(before):
            return None
        operator, lake = self._operator, self._lake
        first = delta.read(spark, lake.table(operator), self._version)
        corrections = delta.open_table(lake.table(operator, CORRECTIONS), self._corrections)
        # No step emits anything for a time that the clock had passed before it.
        new = days_of(first.where(F.col(AT) >= literal(from_micros(before.closed))))
        return frozenset(new | corrected_since(before.corrections, corrections))

    def rows(self, spark: SparkSession) -> DataFrame:
        operator, lake = self._operator, self._lake
        corrections = read_corrections(spark, lake, operator, "", self._corrections)
        current = current_results(delta.read(spark, lake.table(operator), self._version), corrections, operator)
        reason = F.when(F.col("_corrected"), "correction").otherwise("first").alias(REASON)
        results = current.select(*current.columns, reason).drop("_corrected")
        # A text, because values may be such as have no order.
        values = as_json(F.col(f"`{name}`") for name in operator.output_schemas[""].names)
        own = [F.col(f"`{name}`") for name in (*operator.by, AT)]
        number = F.row_number().over(SortedBy.partitionBy(*own).orderBy(values))
        return self._of.identified(results, [*own, number], [F.col(AT), values])

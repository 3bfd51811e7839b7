"""Window joins and co-groups as results that change."""

from __future__ import annotations

from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import from_micros, literal
from streaming.declare import CORRECTIONS, Delivery, TwoSided
from streaming.deliveries.changing import Look, corrected_since, days_of
from streaming.deliveries.keyless import Keyless, LookAtCorrected
from streaming.deliveries.seen import Seen
from streaming.joins import numbered_corrections, read_first, read_two_sided_corrections
from streaming.lake import Lake
from streaming.operators import PinnedTables, Reached
from streaming.spark import as_json
from streaming.tables import delta
from streaming.views import current_with_reasons


class ChangingTwoSided(Keyless):
    """A window join or a co-group: first results and corrections. Results of one key and window are numbered."""

    operator: TwoSided
    time = "window_start"

    def __init__(self, lake: Lake, delivery: Delivery, operator: TwoSided) -> None:
        super().__init__(lake, delivery, operator, operator.columns)

    def look(self) -> Look | None:
        pinned = PinnedTables.now(self.lake, self.operator, CORRECTIONS)
        return None if pinned.versions[""] == delta.BEFORE else _LookAtTwoSided(self, pinned)


class _LookAtTwoSided(LookAtCorrected[TwoSided]):
    @property
    def _watermark(self) -> datetime | None:
        return Reached.of(self._operator, self._first).watermark

    def days(self, spark: SparkSession, before: Seen) -> frozenset[date] | None:
        """A session may become one with those of other days, and so may results that share a key without a window."""
        operator, lake, key = self._operator, self._lake, self._of.key
        beyond_days = operator.window.merging or (key and "window_start" not in [sql.strip("`") for sql in key])
        if beyond_days or self._anew(before):
            return None
        since = operator.window.closed_by(from_micros(before.closed))
        first = read_first(spark, lake, operator, self._version).where(F.col("window_end") > literal(since))
        corrections = delta.open_table(lake.table(operator, CORRECTIONS), self._corrections)
        return frozenset(days_of(first) | corrected_since(before.corrections, corrections))

    def rows(self, spark: SparkSession) -> DataFrame:
        operator, lake = self._operator, self._lake
        corrections = read_two_sided_corrections(spark, lake, operator, self._corrections)
        first = read_first(spark, lake, operator, self._version)
        current = current_with_reasons(first, numbered_corrections(corrections), operator)
        # A text, because values may be such as have no order.
        values = as_json(F.col(name) for name in operator.values)
        number = F.row_number().over(SortedBy.partitionBy(*operator.identity).orderBy(values))
        own = [*(F.col(name) for name in operator.identity), number]
        return self._of.identified(current, own, [F.col("window_start"), F.col("window_end"), values])

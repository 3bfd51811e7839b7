"""Joins, window joins and co-groups as results that change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import ORIGIN, from_micros, literal
from streaming.declare import CORRECTIONS, UNMATCHED, Delivery, Joined, TwoSided
from streaming.deliveries.changing import Look, corrected_since, days_of
from streaming.deliveries.keyless import Keyless, LookAtCorrected
from streaming.deliveries.seen import Seen
from streaming.joins import (
    current_rows,
    numbered_corrections,
    read_first,
    read_two_sided_corrections,
    voided_rows,
    with_reasons,
)
from streaming.lake import Lake
from streaming.operators import PinnedTables, Reached, generation_of
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
        values = F.to_json(F.struct(*operator.values), {"ignoreNullFields": "false"})
        number = F.row_number().over(SortedBy.partitionBy(*operator.identity).orderBy(values))
        own = [*(F.col(name) for name in operator.identity), number]
        return self._of.identified(current, own, [F.col("window_start"), F.col("window_end"), values])


class ChangingJoin(Keyless):
    """A join that tells of rows without a partner: pairs that come later void these. Results are known by origins."""

    operator: Joined
    time = "_at"

    def __init__(self, lake: Lake, delivery: Delivery, joined: Joined) -> None:
        super().__init__(lake, delivery, joined, joined.columns)

    def look(self) -> Look | None:
        versions = PinnedTables.now(self.lake, self.operator).versions
        return None if delta.BEFORE in versions.values() else _LookAtJoin(self, versions)


class _LookAtJoin(Look):
    def __init__(self, of: ChangingJoin, versions: Mapping[str, int]) -> None:
        self._of = of
        self._versions = versions
        own = delta.open_table(of.lake.table(of.operator), versions[""])
        self._step, self._generation = Reached.of(of.operator, own).batch, generation_of(own)

    def seen(self, before: Seen) -> Seen:
        return replace(Seen(), revision=before.revision, step=self._step, of_generation=self._generation)

    def days(self, spark: SparkSession, before: Seen) -> frozenset[date] | None:
        """Results that share a key may be of any days."""
        if before.revision < 0 or before.again or self._of.key or before.of_generation != self._generation:
            return None
        pairs, unmatched = self._read(spark)
        new = F.col("_batch") > before.step
        voided = voided_rows(pairs.where(new), unmatched, self._of.operator.outer_sides)
        parts = [pairs.where(new), unmatched.where(new), voided]
        return frozenset(days_of(reduce(DataFrame.unionByName, parts)))

    def rows(self, spark: SparkSession) -> DataFrame:
        pairs, unmatched = self._read(spark)
        sides = self._of.operator.outer_sides
        current = with_reasons(current_rows(pairs, unmatched, sides), unmatched, sides)
        return self._of.identified(current, [F.col(ORIGIN)], [F.col("_at"), F.col(ORIGIN)])

    def _read(self, spark: SparkSession) -> tuple[DataFrame, DataFrame]:
        """Pairs, and the rows without one that were told by then: these are written first in a step."""
        lake, joined = self._of.lake, self._of.operator
        pairs, unmatched = (
            delta.read(spark, lake.table(joined, suffix), self._versions[suffix]) for suffix in ("", UNMATCHED)
        )
        return pairs, unmatched.where(F.col("_batch") <= self._step)

"""Joins as results that change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ORIGIN
from streaming.declare import UNMATCHED, Delivery, Joined
from streaming.deliveries.changing import Look, days_of
from streaming.deliveries.keyless import Keyless
from streaming.deliveries.seen import Seen
from streaming.joins import current_rows, voided_rows, with_reasons
from streaming.lake import Lake
from streaming.operators import PinnedTables, Reached, generation_of
from streaming.tables import delta


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

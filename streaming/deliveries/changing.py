"""Results that change: what is current of each kind of operator, and on which days it may be new."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from functools import reduce
from itertools import takewhile
from typing import Generic, TypeVar

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming import keyed
from streaming.base import AT, DAY, ORIGIN, from_micros, literal, optional_micros
from streaming.declare import CORRECTIONS, UNMATCHED, UPDATES, Delivery, Joined, Keyed, Operator, OverWindows
from streaming.deliveries.outbox import chosen_rows, may_fail
from streaming.joins import current_rows, voided_rows, with_reasons
from streaming.keyed import current_results
from streaming.lake import Lake
from streaming.operators import PinnedTables, Progress, generation_of
from streaming.sinks import REASON, RESULT_ID
from streaming.spark import as_json, exact_json, guarded
from streaming.tables import delta, newest_commits
from streaming.views import (
    current_with_reasons,
    pinned_windows,
    read_corrections,
    read_first,
    read_updates,
    updated_through,
)

_PLACE, _OWN = "_place", "_own"
Corrects = TypeVar("Corrects", bound=Operator)
NOTHING_CLOSED = -(2**62)


@dataclass(frozen=True)
class ChangePosition:
    """The state that the newest changes follow from: `closed` (a watermark in microseconds) of the first results, the
    updates through a batch, a version of the corrections, a `step` of a join, all of one generation; `revision` numbers
    the changes.

    `again`: the next changes repeat everything, whatever was told.
    """

    revision: int = -1
    closed: int = NOTHING_CLOSED
    updates: int = -1
    corrections: int = delta.BEFORE
    step: int = -1
    of_generation: int = 0
    again: int = 0

    @classmethod
    def of(cls, table: DeltaTable | None) -> ChangePosition:
        """The state that an open table of changes records."""
        kept = {name: None if table is None else table.transaction_version(name) for name in cls.__annotations__}
        return cls(**{name: number for name, number in kept.items() if number is not None})


class Look(ABC):
    """Current results as the tables of an operator had them at one moment."""

    @abstractmethod
    def seen(self, before: ChangePosition) -> ChangePosition:
        """The state that follows from the tables as they are, where it was `before`; equal to it if nothing is new."""

    @abstractmethod
    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        """The days on which a result may have changed since; None for all of them."""

    @abstractmethod
    def rows(self, spark: SparkSession) -> DataFrame:
        """The columns that are told, `_day` and `_reason`: one row for each result that the delivery carries."""


class Changing(ABC):
    """The operator of a delivery, whose current results change."""

    operator: Operator

    identity: tuple[str, ...]
    """The columns of which no two results have the same values."""

    columns: tuple[str, ...]
    """The columns that are told, those of the identity included."""

    kept: tuple[str, ...]
    """Those of them that are told of a deleted result; the others are null."""

    time: str
    """The column with the event time of a result."""

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator) -> None:
        self.lake = lake
        self.delivery = delivery
        self.operator = operator

    def generation(self) -> int:
        """The number of times that the operator was built anew."""
        return generation_of(delta.open_table(self.lake.table(self.operator)))

    @abstractmethod
    def look(self) -> Look | None:
        """The results as they are now; None while there are none."""


def chosen(current: DataFrame, delivery: Delivery) -> DataFrame:
    """Those results that the delivery tells of."""
    return chosen_rows(current, delivery, DAY)


def corrected_since(version: int, table: DeltaTable | None) -> set[date]:
    """The days that were corrected after a version of an open table of corrections."""
    commits = () if table is None else newest_commits(table)
    newer = takewhile(lambda commit: commit["version"] > version, commits)
    metadata = [commit["userMetadata"] for commit in newer if isinstance(commit["userMetadata"], dict)]
    days = [day for each in metadata if isinstance(each.get("through"), dict) for day in each["through"]]
    return {date.fromisoformat(day) for day in days}


def days_of(frame: DataFrame) -> set[date]:
    """The days of its rows."""
    return {row[0] for row in frame.select(DAY).distinct().collect()}


class Keyless(Changing):
    """No columns of a result need to identify it; a delete tells what was told before, so that it has any key."""

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator, columns: tuple[str, ...]) -> None:
        super().__init__(lake, delivery, operator)
        self.identity = (RESULT_ID,)
        self.columns = self.kept = (*columns, RESULT_ID)

    @property
    def key(self) -> tuple[str, ...]:
        """The delivery's own key as SQL over a result; empty where it has none."""
        names = [name for name in self.delivery.identity if name != RESULT_ID]
        return tuple(self.delivery.selected[name] for name in names)

    def identified(self, current: DataFrame, own: list[Column], order: list[Column]) -> DataFrame:
        """With the text that identifies each: that of its key, of which the last in `order` stands, or of its `own`."""
        rows = chosen(current, self.delivery)
        if not self.key:
            return rows.withColumn(RESULT_ID, _text(own))
        of_key = SortedBy.partitionBy(RESULT_ID).orderBy(*(column.desc() for column in order))
        by_key = _text([F.expr(sql) for sql in self.key])
        if any(may_fail(sql, self.delivery) for sql in self.key):
            # Results of which the key cannot be computed share none, as each is a dead letter of its own.
            by_key = F.coalesce(guarded(by_key, DAY)["value"], _OWN)
        with_ids = rows.withColumn(_OWN, _text(own)).withColumn(RESULT_ID, by_key).drop(_OWN)
        return with_ids.withColumn(_PLACE, F.row_number().over(of_key)).where(F.col(_PLACE) == 1).drop(_PLACE)


class LookAtCorrected(Look, Generic[Corrects]):
    """First results, updates and corrections of an operator, as its tables had them at one moment."""

    def __init__(self, of: Keyless, pinned: PinnedTables[Corrects]) -> None:
        self._of = of
        self._operator = pinned.operator
        self._lake = of.lake
        self._versions = pinned.versions
        self._first = delta.open_table(of.lake.table(pinned.operator), pinned.versions[""])

    def seen(self, before: ChangePosition) -> ChangePosition:
        closed = optional_micros(Progress.of(self._operator, self._first).watermark)
        return replace(
            ChangePosition(),
            revision=before.revision,
            closed=NOTHING_CLOSED if closed is None else closed,
            corrections=self._versions[CORRECTIONS],
            of_generation=generation_of(self._first),
        )

    def _anew(self, before: ChangePosition) -> bool:
        """True if any result may have changed, because nothing was told yet or the operator was built anew."""
        anew = before.revision < 0 or before.closed == NOTHING_CLOSED or before.again > 0
        return anew or before.of_generation != generation_of(self._first)

    def _corrected_since(self, before: ChangePosition) -> set[date]:
        """The days that were corrected since."""
        table = delta.open_table(self._lake.table(self._operator, CORRECTIONS), self._versions[CORRECTIONS])
        return corrected_since(before.corrections, table)


def _text(of: list[Column]) -> Column:
    parts = F.struct(*(part.alias(f"_{place}") for place, part in enumerate(of)))
    return F.sha2(exact_json(parts), 256)


class ChangingOverWindows(Keyless):
    """An operator over windows: first results, updates and corrections.

    Results are known by key and window; where there may be several of these, they are numbered.
    """

    operator: OverWindows
    time = "window_start"

    def __init__(self, lake: Lake, delivery: Delivery, operator: OverWindows) -> None:
        super().__init__(lake, delivery, operator, operator.columns)
        if operator.result_key:
            self.identity = self.kept = operator.result_key
            self.columns = operator.columns

    def look(self) -> Look | None:
        pinned = pinned_windows(self.lake, self.operator)
        return None if pinned.versions[""] == delta.BEFORE else _LookAtWindows(self, pinned)


class _LookAtWindows(LookAtCorrected[OverWindows]):
    def seen(self, before: ChangePosition) -> ChangePosition:
        operator, updates = self._operator, self._versions.get(UPDATES, delta.BEFORE)
        through = updated_through(self._lake, operator, updates) if operator.updated else -1
        return replace(super().seen(before), updates=through)

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        """A session may become one with those of other days, and so may results that share a key without a window."""
        operator, lake = self._operator, self._lake
        key = () if operator.result_key else self._of.key
        beyond_days = operator.window.merging or (key and "window_start" not in [sql.strip("`") for sql in key])
        if beyond_days or self._anew(before):
            return None
        since = operator.window.closed_by(from_micros(before.closed))
        first = read_first(spark, lake, operator, self._versions[""])
        days = days_of(first.where(F.col("window_end") > literal(since)))
        updates = self._updates(spark)
        if updates is not None:
            days |= days_of(updates.where(F.col("_batch") > before.updates))
        return frozenset(days | self._corrected_since(before))

    def rows(self, spark: SparkSession) -> DataFrame:
        operator, lake = self._operator, self._lake
        first = read_first(spark, lake, operator, self._versions[""])
        corrections = read_corrections(spark, lake, operator, self._versions[CORRECTIONS])
        current = current_with_reasons(first, corrections, operator, self._updates(spark))
        if operator.result_key:
            return chosen(current, self._of.delivery)
        # A text, because values may be such as have no order.
        values = as_json(F.col(name) for name in operator.values)
        number = F.row_number().over(SortedBy.partitionBy(*operator.identity).orderBy(values))
        own = [*(F.col(name) for name in operator.identity), number]
        return self._of.identified(current, own, [F.col("window_start"), F.col("window_end"), values])

    def _updates(self, spark: SparkSession) -> DataFrame | None:
        return read_updates(spark, self._lake, self._operator, self._versions.get(UPDATES, delta.BEFORE))


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
    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
        """Results that share a key of the delivery may be of any days."""
        if self._of.key or self._anew(before):
            return None
        operator, lake = self._operator, self._lake
        first = delta.read(spark, lake.table(operator), self._versions[""])
        # No step emits anything for a time that the clock had passed before it.
        new = days_of(first.where(F.col(AT) >= literal(from_micros(before.closed))))
        return frozenset(new | self._corrected_since(before))

    def rows(self, spark: SparkSession) -> DataFrame:
        operator, lake = self._operator, self._lake
        corrections = keyed.read_corrections(spark, lake, operator, "", self._versions[CORRECTIONS])
        current = current_results(delta.read(spark, lake.table(operator), self._versions[""]), corrections, operator)
        reason = F.when(F.col("_corrected"), "correction").otherwise("first").alias(REASON)
        results = current.select(*current.columns, reason).drop("_corrected")
        # A text, because values may be such as have no order.
        values = as_json(F.col(f"`{name}`") for name in operator.output_schemas[""].names)
        own = [F.col(f"`{name}`") for name in (*operator.by, AT)]
        number = F.row_number().over(SortedBy.partitionBy(*own).orderBy(values))
        return self._of.identified(results, [*own, number], [F.col(AT), values])


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
        self._step, self._generation = Progress.of(of.operator, own).batch, generation_of(own)

    def seen(self, before: ChangePosition) -> ChangePosition:
        return replace(ChangePosition(), revision=before.revision, step=self._step, of_generation=self._generation)

    def days(self, spark: SparkSession, before: ChangePosition) -> frozenset[date] | None:
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

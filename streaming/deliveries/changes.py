"""What changes of a view's current results, written down before it is delivered: upserts and deletes with revisions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime
from itertools import takewhile

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, FencedError, date_literal, from_micros, literal, optional_micros
from streaming.declare import CHANGES, CORRECTIONS, Delivery, Windowed
from streaming.deliveries.outbox import UNIT, Outbox
from streaming.deliveries.recorded import recorded_by
from streaming.lake import Lake
from streaming.operators import generation_of
from streaming.sinks import CHANGE, DELETE, REASON, REVISION, TIME
from streaming.tables import delta, newest_commits
from streaming.views import (
    PinnedView,
    Position,
    current_with_reasons,
    read_corrections,
    read_first,
    read_updates,
    updated_through,
)

UPSERT = "upsert"
_BEFORE_ALL = -(2**62)


@dataclass(frozen=True)
class Seen:
    """What the newest changes follow from: `closed` (a watermark in microseconds) of the first results, the updates
    through a batch, a version of the corrections, all of one generation; `revision` numbers the changes.

    `again`: the next changes repeat everything, whatever was told.
    """

    revision: int = -1
    closed: int = _BEFORE_ALL
    updates: int = -1
    corrections: int = delta.BEFORE
    of_generation: int = 0
    again: int = 0

    @classmethod
    def of(cls, table: DeltaTable | None) -> Seen:
        """What an open table of changes says."""
        kept = {name: None if table is None else table.transaction_version(name) for name in cls.__annotations__}
        return cls(**{name: number for name, number in kept.items() if number is not None})


class ChangesOutbox(Outbox):
    """A unit is a revision: all changes that one look at the view's tables found."""

    begin = 0

    def __init__(self, lake: Lake, delivery: Delivery, view: Windowed) -> None:
        self._lake = lake
        self._view = view
        self._delivery = delivery
        self._uri = lake.table(delivery, CHANGES)
        self.order = view.identity

    def generation(self) -> int:
        return generation_of(delta.open_table(self._lake.first(self._view)))

    def end(self, since: int) -> int:
        return Seen.of(delta.open_table(self._uri)).revision + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        changes = delta.read(spark, self._uri)
        named = {UNIT: F.col(REVISION), TIME: F.col("window_start")}
        return changes.where((F.col(REVISION) >= since) & (F.col(REVISION) < until)).withColumns(named)

    def follow(self, spark: SparkSession, now: Callable[[], datetime]) -> None:
        """Write down what has changed since the last look, in one commit."""
        table = delta.open_table(self._uri)
        before, pinned = Seen.of(table), PinnedView.now(self._lake, self._view)
        after = self._seen_now(before, pinned)
        if pinned.first == delta.BEFORE or after == before:
            return
        days = self._days(spark, before, pinned)
        if days == frozenset():
            delta.note(self._uri, metadata=vars(after), numbers=vars(after), fence=self._fence(before))
            return
        after = replace(after, revision=before.revision + 1)
        changes = self._changes(spark, table, pinned, days, again=bool(before.again)).select(
            *self._view.columns, DAY, CHANGE, REASON, F.lit(after.revision).cast("bigint").alias(REVISION)
        )
        about = f"Changes of {self._view.name} for delivery {self._delivery.name}"
        properties = recorded_by(self._delivery)
        delta.create(self._uri, changes.schema, append_only=True, description=about, properties=properties)
        numbers = vars(after)
        statistics = ("window_start", REVISION)
        fence = self._fence(before)
        delta.append(
            changes,
            self._uri,
            txn=None,
            metadata=lambda: numbers,
            numbers=lambda: numbers,
            statistics=statistics,
            fence=fence,
        )

    def begin_anew(self, *, again: bool) -> None:
        """The next look compares all of the view; `again` repeats what is the same as well."""
        table = delta.open_table(self._uri)
        if table is not None:
            before = Seen.of(table)
            after = replace(before, closed=_BEFORE_ALL, of_generation=self.generation() - 1, again=int(again))
            delta.note(self._uri, metadata=vars(after), numbers=vars(after), fence=self._fence(before))

    def still_told(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """What came after a change may have been delivered, and a deleted row must not come back."""
        newest = delta.read(spark, self._uri).groupBy(*self._view.identity).agg(F.max(REVISION).alias("_newest"))
        theirs = newest.select(*(F.col(name).alias(f"_its_{name}") for name in newest.columns))
        same = [F.col(name).eqNullSafe(F.col(f"_its_{name}")) for name in self._view.identity]
        return rows.join(theirs, [*same, F.col(REVISION) == F.col("_its__newest")], "left_semi")

    def told(self, spark: SparkSession, until: int) -> DataFrame:
        """What a consumer of all changes before a revision holds: the newest upsert of each result not deleted since.

        Rows have the columns of `rows`.
        """
        newest = _newest(self.rows(spark, self.begin, until), self._view)
        return newest.where(F.col(CHANGE) == UPSERT)

    def _seen_now(self, before: Seen, pinned: PinnedView) -> Seen:
        first = delta.open_table(self._lake.first(self._view), pinned.first)
        closed = optional_micros(Position.of(first).watermark)
        return Seen(
            revision=before.revision,
            closed=_BEFORE_ALL if closed is None else closed,
            updates=updated_through(self._lake, self._view, pinned.updates) if self._view.updated else -1,
            corrections=pinned.corrections,
            of_generation=generation_of(first),
        )

    def _days(self, spark: SparkSession, before: Seen, pinned: PinnedView) -> frozenset[date] | None:
        """The days on which something may have changed; None for all of them.

        A late row may join sessions of several days, of which each is compared.
        """
        view, lake = self._view, self._lake
        anew = before.revision < 0 or before.closed == _BEFORE_ALL or before.again
        first = delta.open_table(lake.first(view), pinned.first)
        if anew or view.window.merging or before.of_generation != generation_of(first):
            return None
        since = view.window.closed_by(from_micros(before.closed))
        found = _days_of(read_first(spark, lake, view, pinned.first).where(F.col("window_end") > literal(since)))
        updates = read_updates(spark, lake, view, pinned.updates)
        if updates is not None:
            found |= _days_of(updates.where(F.col("_batch") > before.updates))
        return frozenset(found | self._corrected_since(before, pinned))

    def _corrected_since(self, before: Seen, pinned: PinnedView) -> set[date]:
        table = delta.open_table(self._lake.table(self._view, CORRECTIONS), pinned.corrections)
        commits = () if table is None else newest_commits(table)
        newer = takewhile(lambda commit: commit["version"] > before.corrections, commits)
        told = [commit["userMetadata"] for commit in newer if isinstance(commit["userMetadata"], dict)]
        days = [day for each in told if isinstance(each.get("through"), dict) for day in each["through"]]
        return {date.fromisoformat(day) for day in days}

    def _changes(
        self,
        spark: SparkSession,
        table: DeltaTable | None,
        at: PinnedView,
        days: frozenset[date] | None,
        *,
        again: bool,
    ) -> DataFrame:
        view, lake = self._view, self._lake
        current = current_with_reasons(
            read_first(spark, lake, view, at.first),
            read_corrections(spark, lake, view, at.corrections),
            view,
            read_updates(spark, lake, view, at.updates),
        )
        if self._delivery.where is not None:
            current = current.where(self._delivery.where)
        if table is None:
            return _on(current, days).withColumn(CHANGE, F.lit(UPSERT))
        told = _newest(_on(delta.read(spark, self._uri, table.version()), days), view)
        return changes_between(told.where(F.col(CHANGE) == UPSERT), _on(current, days), view, again=again)

    def _fence(self, before: Seen) -> Callable[[DeltaTable], None]:
        def fence(table: DeltaTable) -> None:
            if Seen.of(table) != before:
                raise FencedError(
                    f"the changes of delivery {self._delivery.name!r} were written by another process meanwhile; let "
                    "it run alone. Nothing is lost."
                )

        return fence


def changes_between(told: DataFrame, current: DataFrame, view: Windowed, *, again: bool = False) -> DataFrame:
    """What a consumer that holds `told` must hear to hold `current`: the view's columns, `_day`, `_change`, `_reason`.

    With `again` what is the same is told once more.
    """
    old = told.select(*(F.col(name).alias(f"_old_{name}") for name in (*view.columns, DAY)))
    same = [F.col(name).eqNullSafe(F.col(f"_old_{name}")) for name in view.identity]
    both = current.withColumn("_is", F.lit(True)).join(old.withColumn("_was", F.lit(True)), same, "full_outer")
    unequal = F.lit(again)
    for name in view.values:
        unequal = unequal | ~_comparable(current, name).eqNullSafe(_comparable(old, f"_old_{name}"))
    upsert, vanished = F.col("_is") & (F.col("_was").isNull() | unequal), F.col("_is").isNull()
    identity = [F.coalesce(name, f"_old_{name}").alias(name) for name in (*view.identity, DAY)]
    return both.where(upsert | vanished).select(
        *identity,
        *view.values,
        F.when(vanished, F.lit(DELETE)).otherwise(F.lit(UPSERT)).alias(CHANGE),
        F.when(vanished, F.lit("correction")).otherwise(F.col(REASON)).alias(REASON),
    )


def _comparable(frame: DataFrame, name: str) -> Column:
    # Spark compares no maps.
    return F.to_json(name) if frame.schema[name].dataType.typeName() == "map" else F.col(name)


def _newest(changes: DataFrame, view: Windowed) -> DataFrame:
    """Of each result the change with the greatest revision."""
    others = [name for name in changes.columns if name not in view.identity]
    newest = F.max_by(F.struct(*others), F.col(REVISION)).alias("_newest")
    return changes.groupBy(*view.identity).agg(newest).select(*view.identity, "_newest.*")


def _on(frame: DataFrame, days: frozenset[date] | None) -> DataFrame:
    return frame if days is None else frame.where(F.col(DAY).isin(*(date_literal(day) for day in sorted(days))))


def _days_of(frame: DataFrame) -> set[date]:
    return {row[0] for row in frame.select(DAY).distinct().collect()}

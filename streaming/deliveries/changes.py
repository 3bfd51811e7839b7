"""Changes of current results, written down before they are delivered: upserts and deletes with revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from streaming.base import DAY, FencedError, RedeliveryError, date_literal
from streaming.declare import CHANGES, Delivery
from streaming.deliveries.changing import NOTHING_CLOSED, ChangePosition, Changing, Look
from streaming.deliveries.ledger import recorded_by
from streaming.deliveries.outbox import ROW, UNIT, Cursor, Outbox, with_places, without_places
from streaming.lake import Lake
from streaming.operators import comparable
from streaming.sinks import CHANGE, DELETE, REASON, REVISION, TIME
from streaming.tables import delta

UPSERT = "upsert"


@dataclass(frozen=True)
class _News:
    """The changes that take what was seen `before` to `after`; None where no day can have any."""

    before: ChangePosition
    after: ChangePosition
    changes: DataFrame | None


class ChangesOutbox(Outbox):
    """A unit is a revision: all changes that one look at the operator's tables found."""

    begin = 0

    def __init__(self, lake: Lake, delivery: Delivery, of: Changing) -> None:
        self._of = of
        self._delivery = delivery
        self._uri = lake.table(delivery, CHANGES)
        self.order = of.identity

    def generation(self) -> int:
        return self._of.generation()

    def end(self, since: int) -> int:
        return ChangePosition.of(delta.open_table(self._uri)).revision + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        changes = delta.read(spark, self._uri)
        named = {UNIT: F.col(REVISION), TIME: F.col(self._of.time)}
        return changes.where((F.col(REVISION) >= since) & (F.col(REVISION) < until)).withColumns(named)

    def follow(self, spark: SparkSession, now: Callable[[], object]) -> None:
        """Write down what has changed since the last look, in one commit."""
        self._write_down(spark, frozenset())

    def tell_again(self, spark: SparkSession, days: frozenset[date]) -> int | None:
        """As the next revision: results of the days as they stand, and deletes of those that are there no more."""
        self._write_down(spark, days)
        return self.end(self.begin)

    def untold(self, spark: SparkSession) -> int:
        news = self._news(spark, frozenset())
        return 0 if news is None or news.changes is None else news.changes.count()

    def _write_down(self, spark: SparkSession, again: frozenset[date]) -> None:
        news = self._news(spark, again)
        if news is None:
            return
        numbers, fence = vars(news.after), self._fence(news.before)
        if news.changes is None:
            delta.note(self._uri, says=numbers, numbers=numbers, fence=fence)
            return
        about = f"Changes of {self._of.operator.name} for delivery {self._delivery.name}"
        properties = recorded_by(self._delivery)
        delta.create(self._uri, news.changes.schema, append_only=True, description=about, properties=properties)
        statistics = (self._of.time, REVISION)
        delta.append(news.changes, self._uri, says=numbers, numbers=numbers, statistics=statistics, fence=fence)

    def _news(self, spark: SparkSession, again: frozenset[date]) -> _News | None:
        """The changes since the last look, and all that is current of the days `again`; None where nobody wrote."""
        look, table = self._of.look(), delta.open_table(self._uri)
        before = ChangePosition.of(table)
        after = before if look is None else look.seen(before)
        if look is None or (after == before and not again):
            return None
        days = look.days(spark, before)
        days = None if days is None else days | again
        if days == frozenset():
            return _News(before, after, None)
        after = replace(after, revision=before.revision + 1)
        changes = self._changes(spark, table, look, days, None if before.again else again).select(
            *self._of.columns, DAY, CHANGE, REASON, F.lit(after.revision).cast("bigint").alias(REVISION)
        )
        return _News(before, after, changes)

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        """`at` itself: revisions are numbered on. What was told gets the columns that results have by now.

        Raises:
            RedeliveryError: results are known by other columns than before, or a column has another type.
        """
        told, own = delta.open_table(self._uri), delta.open_table(self._of.lake.table(self._of.operator))
        if told is None or own is None:
            return at
        columns = StructType([field for field in delta.schema_of(own.table_uri) if field.name in self._of.columns])
        before = {field.name: field.dataType for field in delta.schema_of(self._uri)}
        unknown = [name for name in self._of.identity if name not in before]
        other = [field for field in columns if before.get(field.name, field.dataType) != field.dataType]
        if unknown or other:
            why = f"what identifies a result has {unknown[0]!r} now" if unknown else _retyped(other[0], before)
            raise RedeliveryError(
                f"delivery {self._delivery.name!r} cannot go on: {why}, so what was told cannot be compared with what "
                f"is current. Give the old declaration of {self._of.operator.name!r} back, or declare the delivery "
                "under a new name, with a target of its own. Nothing was delivered."
            )
        delta.widen(self._uri, columns)
        return at

    def begin_anew(self, *, again: bool) -> None:
        """The next look compares all results; `again` repeats what is the same, and what was deleted, as well."""
        table = delta.open_table(self._uri)
        if table is not None:
            before = ChangePosition.of(table)
            after = replace(before, closed=NOTHING_CLOSED, of_generation=self.generation() - 1, again=int(again))
            delta.note(self._uri, says=vars(after), numbers=vars(after), fence=self._fence(before))

    def still_told(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """The `rows` without a newer change, which may have been delivered: a deleted row must not come back."""
        newest = delta.read(spark, self._uri).groupBy(*self._of.identity).agg(F.max(REVISION).alias("_newest"))
        theirs = newest.select(*(F.col(name).alias(f"_its_{name}") for name in newest.columns))
        same = [F.col(name).eqNullSafe(F.col(f"_its_{name}")) for name in self._of.identity]
        return rows.join(theirs, [*same, F.col(REVISION) == F.col("_its__newest")], "left_semi")

    def told(self, spark: SparkSession, until: int, dead: Sequence[Cursor] = ()) -> DataFrame:
        """The results held by a consumer of all changes before a revision: the newest upsert of each not deleted since.

        Rows have the columns of `rows`. Changes at the places `dead` never came there.
        """
        rows = self.rows(spark, self.begin, until)
        newest = _newest(without_places(with_places(rows, self), dead).drop(ROW) if dead else rows, self._of)
        return newest.where(F.col(CHANGE) == UPSERT)

    def _changes(
        self,
        spark: SparkSession,
        table: DeltaTable | None,
        look: Look,
        days: frozenset[date] | None,
        again: frozenset[date] | None,
    ) -> DataFrame:
        current = look.rows(spark)
        if table is None:
            return _on(current, days).withColumn(CHANGE, F.lit(UPSERT))
        changes = _newest(_on(delta.read(spark, self._uri, table.version()), days), self._of)
        # Of what is told again also what had been deleted: the target may have it back.
        held = changes.where((F.col(CHANGE) == UPSERT) | _is_told_again(F.col(DAY), again))
        return changes_between(held, _on(current, days), self._of, again)

    def _fence(self, before: ChangePosition) -> Callable[[DeltaTable], None]:
        def fence(table: DeltaTable) -> None:
            if ChangePosition.of(table) != before:
                raise FencedError(
                    f"the changes of delivery {self._delivery.name!r} were written by another process meanwhile; let "
                    "it run alone. Nothing is lost."
                )

        return fence


def changes_between(
    baseline: DataFrame, current: DataFrame, of: Changing, again: frozenset[date] | None = frozenset()
) -> DataFrame:
    """The changes that take a consumer from `baseline` to `current`: its columns, `_day`, `_change`, `_reason`.

    On the days `again`, or with None on every day, what is the same is told once more.
    """
    old = baseline.select(*(F.col(name).alias(f"_old_{name}") for name in (*of.columns, DAY)))
    same = [F.col(name).eqNullSafe(F.col(f"_old_{name}")) for name in of.identity]
    both = current.withColumn("_is", F.lit(True)).join(old.withColumn("_was", F.lit(True)), same, "full_outer")
    days = [F.col(name) for name in (DAY, f"_old_{DAY}")]
    unequal = _is_told_again(days[0], again) | _is_told_again(days[1], again)
    for name in of.columns:
        if name not in of.identity:
            unequal = unequal | ~comparable(current, name).eqNullSafe(comparable(old, f"_old_{name}"))
    upsert, vanished = F.col("_is") & (F.col("_was").isNull() | unequal), F.col("_is").isNull()

    def as_told(name: str) -> Column:
        was = F.col(f"_old_{name}") if name in (*of.kept, DAY) else F.lit(None)
        return F.when(vanished, was).otherwise(F.col(name)).alias(name)

    return both.where(upsert | vanished).select(
        *(as_told(name) for name in (*of.columns, DAY)),
        F.when(vanished, F.lit(DELETE)).otherwise(F.lit(UPSERT)).alias(CHANGE),
        F.when(vanished, F.lit("correction")).otherwise(F.col(REASON)).alias(REASON),
    )


def _retyped(column: StructField, before: Mapping[str, DataType]) -> str:
    types = f"{before[column.name].simpleString()} and is {column.dataType.simpleString()} now"
    return f"column {column.name!r} was {types}"


def _newest(changes: DataFrame, of: Changing) -> DataFrame:
    """The change of each result with the greatest revision."""
    others = [name for name in changes.columns if name not in of.identity]
    newest = F.max_by(F.struct(*others), F.col(REVISION)).alias("_newest")
    return changes.groupBy(*of.identity).agg(newest).select(*of.identity, "_newest.*")


def _on(frame: DataFrame, days: frozenset[date] | None) -> DataFrame:
    return frame if days is None else frame.where(_is_on(F.col(DAY), days))


def _is_told_again(day: Column, again: frozenset[date] | None) -> Column:
    """True where `day` is one of those that are told again, which with None are all."""
    return F.lit(True) if again is None else _is_on(day, again)


def _is_on(day: Column, days: frozenset[date]) -> Column:
    """True where `day` is one of the days; false where it is null."""
    return F.coalesce(day.isin(*(date_literal(each) for each in sorted(days))), F.lit(False)) if days else F.lit(False)

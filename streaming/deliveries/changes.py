"""Changes of current results as a delivery tells them: upserts and deletes with revisions, one for each key of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import COPY, DAY, REASON, REVISION, SIGN, FencedError, RedeliveryError
from streaming.changes import Publishing
from streaming.declare import CHANGES, Delivery, Operator
from streaming.deliveries.ledger import ledger_of
from streaming.deliveries.outbox import ROW, UNIT, Cursor, Outbox, chosen_rows, may_fail, with_places, without_places
from streaming.lake import Lake
from streaming.operators import comparable, generation_of
from streaming.sinks import CHANGE, DELETE, RESULT_ID, TIME
from streaming.spark import as_json, guarded
from streaming.tables import delta

UPSERT, _CORRECTION = "upsert", "correction"
_AT_ONCE = 1_000
"""Revisions whose results of one key are compared with one another."""
_TEXT, _ORDER, _RESULT = "_text", "_order", "_result"
_IS, _WAS, _ASKED = "_is", "_was", "_asked"
_KNOWN, _KNOWN_COPY = "_known", "_known_copy"


class ChangesOutbox(Outbox):
    """A unit is a revision: all changes that one look at the operator's tables found, as its table of changes has them.

    The unit with which the delivery begins holds all that is current by then.

    A delivery of an earlier release wrote its changes down itself. Its units come first, then one that takes it from
    there to what the operator's table says, then the revisions of that table, which are numbered on.
    """

    def __init__(self, lake: Lake, delivery: Delivery, operator: Operator) -> None:
        self._lake = lake
        self._delivery = delivery
        self._operator = operator
        self._publishing = Publishing(lake, operator)
        self._telling = _telling(delivery, operator)
        self._before = _Before(lake, delivery)
        self.order = self._telling.identity

    @property
    def begin(self) -> int:
        ledger = ledger_of(self._lake, self._delivery)
        return self.start if ledger is None else max(0, ledger.whole_at)

    @property
    def start(self) -> int:
        return max(0, self.end(0) - 1)

    def generation(self) -> int:
        return generation_of(delta.open_table(self._lake.table(self._operator)))

    def end(self, since: int) -> int:
        newest, before = self._publishing.revision(), self._before.read()
        if before is None:
            return newest + 1
        return before.unit if before.revision is None else before.unit_of(newest) + 1

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        ledger, before = ledger_of(self._lake, self._delivery), self._before.read()
        whole_at = self.start if ledger is None else ledger.whole_at
        parts = []
        if since <= whole_at < until:
            current = self._current(
                spark, self._revision_of(whole_at), repeats=ledger is not None and ledger.repeats > 0
            )
            parts.append(current.withColumn(REVISION, F.lit(whole_at).cast("bigint")))
        begins = max(since, whole_at + 1)
        if before is not None and begins <= before.unit:
            parts.append(self._own(spark, begins, min(until, before.unit)))
            if before.revision is not None and before.unit < until:
                parts.append(self._handed_over(spark, before.unit, before.revision))
            begins = before.unit + 1
        if begins < until or not parts:
            apart = self._unit_of(0)
            told = self._told(spark, begins - apart, until - apart)
            parts.append(told.withColumn(REVISION, F.col(REVISION) + apart))
        return self._units(reduce(DataFrame.unionByName, parts))

    def follow(self, spark: SparkSession, now: Callable[[], object]) -> None:
        """Publish what has changed since the last look."""
        self._publishing.publish(spark)
        self._before.hand_over(self._publishing.revision())

    def untold(self, spark: SparkSession) -> int:
        changes = self._publishing.untold(spark)
        if changes is None:
            return 0
        newest = self._publishing.revision()
        all_of_them = changes if newest < 0 else self._changes(spark).unionByName(changes)
        return self._telling.told(all_of_them, newest + 1, newest + 2).count()

    def goes_on(self, at: Cursor, generation: int) -> Cursor:
        """`at` itself: revisions are numbered on, whatever was built anew.

        Raises:
            RedeliveryError: results are known by other columns than before, or a column has another type.
        """
        changes, own = (delta.open_table(self._lake.table(self._operator, suffix)) for suffix in (CHANGES, ""))
        if changes is None or own is None or at <= Cursor(self.begin):
            return at
        types = {field.name: field.dataType for field in delta.schema_of(changes.table_uri)}
        now = {field.name: field.dataType for field in delta.schema_of(own.table_uri)}
        begins = self._unit_of(self._publishing.begins())
        if self._publishing.is_retold() and at.unit >= begins:
            return max(at, Cursor(begins + 1))
        unknown = [name for name in self._operator.result_key if name not in types]
        others = [name for name in self._operator.columns if types.get(name, now[name]) != now[name]]
        if unknown:
            why = f"what identifies a result has {unknown[0]!r} now"
        elif others:
            was, is_now = (of[others[0]].simpleString() for of in (types, now))
            why = f"column {others[0]!r} was {was} and is {is_now} now"
        elif begins > 0 and at.unit <= begins:
            why = self._publishing.why_begun() or "results have columns of other types now"
        else:
            return at
        raise RedeliveryError(
            f"delivery {self._delivery.name!r} cannot go on: {why}, so what was told cannot be compared with what is "
            f"current. Give the old declaration of {self._operator.name!r} back, or declare the delivery under a new "
            "name, with a target of its own. Nothing was delivered."
        )

    def still_told(self, spark: SparkSession, rows: DataFrame, until: int | None = None) -> DataFrame:
        """The `rows` without a newer change, which may have been delivered: a deleted row must not come back."""
        everything = self.rows(spark, self.begin, self.end(self.begin) if until is None else until)
        newest = everything.groupBy(*self.order).agg(F.max(REVISION).alias("_newest"))
        theirs = newest.select(*(F.col(name).alias(f"_its_{name}") for name in newest.columns))
        same = [F.col(name).eqNullSafe(F.col(f"_its_{name}")) for name in self._telling.identity]
        return rows.join(theirs, [*same, F.col(REVISION) == F.col("_its__newest")], "left_semi")

    def told(self, spark: SparkSession, until: int, dead: Sequence[Cursor] = ()) -> DataFrame:
        """The results held by a consumer of all changes before a revision: the newest upsert of each not deleted since.

        Rows have the columns of `rows`. Changes at the places `dead` never came there.
        """
        rows = self.rows(spark, self.begin, until)
        arrived = without_places(with_places(rows, self), dead).drop(ROW) if dead else rows
        return _newest(arrived, self._telling.identity).where(F.col(CHANGE) == UPSERT)

    def _told(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """Upserts and deletes of the revisions in [since, until) of the operator's table."""
        changes, self._telling.known = self._changes(spark), self._known(spark)
        begins = [*range(since, until, _AT_ONCE)] or [since]
        pieces = [self._telling.told(changes, begin, min(begin + _AT_ONCE, until)) for begin in begins]
        return reduce(DataFrame.unionByName, pieces)

    def _current(self, spark: SparkSession, revision: int, *, repeats: bool) -> DataFrame:
        """All that is current at a revision of the operator's table; with `repeats` deletes of all that was, too."""
        self._telling.known = self._known(spark)
        newest = self._telling.newest(_of_revisions(self._changes(spark), 0, revision + 1))
        return newest if repeats else newest.where(F.col(CHANGE) == UPSERT)

    def _changes(self, spark: SparkSession) -> DataFrame:
        return delta.read(spark, self._lake.table(self._operator, CHANGES))

    def _own(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """The delivery's own units in [since, until), with null in columns that results got later."""
        rows = self._before.rows(spark, since, until)
        types = {field.name: field.dataType for field in delta.schema_of(self._lake.table(self._operator))}
        lacking = {name: types[name] for name in self._telling.columns if name not in rows.columns}
        rows = rows.withColumns({name: F.lit(None).cast(type_) for name, type_ in lacking.items()})
        return rows.select(*self._telling.columns, DAY, CHANGE, REASON, REVISION)

    def _units(self, told: DataFrame) -> DataFrame:
        return told.withColumns({UNIT: F.col(REVISION), TIME: F.col(self._operator.times[0]).cast("timestamp")})

    def _unit_of(self, revision: int) -> int:
        before = self._before.read()
        return revision if before is None or before.revision is None else before.unit_of(revision)

    def _revision_of(self, unit: int) -> int:
        return unit - self._unit_of(0)

    def _known(self, spark: SparkSession) -> DataFrame | None:
        """The rows that the target holds by the delivery's own units; None where it has none."""
        before = self._before.read()
        if before is None:
            return None
        return _newest(self._own(spark, 0, before.unit), self._telling.identity).where(F.col(CHANGE) == UPSERT)

    def _handed_over(self, spark: SparkSession, unit: int, revision: int) -> DataFrame:
        """The changes that take a consumer of the delivery's own units to what is current at a revision."""
        held, current = self._known(spark), self._current(spark, revision, repeats=False)
        assert held is not None
        changes = _between(held, current, self._telling)
        return changes.withColumn(REVISION, F.lit(unit).cast("bigint"))


class _HandedOver:
    """The units below `unit` are the delivery's own; this unit takes it to `revision`, null until that is known."""

    def __init__(self, unit: int, revision: int | None) -> None:
        self.unit = unit
        self.revision = revision

    def unit_of(self, revision: int) -> int:
        """The unit that a later revision of the operator's table has."""
        assert self.revision is not None
        return self.unit + revision - self.revision


class _Before:
    """The changes that a delivery of an earlier release has written down for itself."""

    _HANDED_OVER = "handed_over"

    def __init__(self, lake: Lake, delivery: Delivery) -> None:
        self._uri = lake.table(delivery, CHANGES)
        self._is_there: bool | None = None
        self._name = delivery.name

    def read(self) -> _HandedOver | None:
        """Where they end; None where there are none."""
        if self._is_there is None:
            self._is_there = delta.exists(self._uri)
        if not self._is_there:
            return None
        table = delta.opened(self._uri)
        return _HandedOver((table.transaction_version("revision") or 0) + 1, self._handed_over(table))

    def rows(self, spark: SparkSession, since: int, until: int) -> DataFrame:
        """Those of the units in [since, until)."""
        return _of_revisions(delta.read(spark, self._uri), since, until)

    def hand_over(self, revision: int) -> None:
        """Note the revision of the operator's table from which on the delivery follows that; only once."""
        if (before := self.read()) is None or before.revision is not None or revision < 0:
            return

        def fence(table: DeltaTable) -> None:
            if self._handed_over(table) is not None:
                raise FencedError(f"delivery {self._name!r} was continued by another process; run it again.")

        numbers = {self._HANDED_OVER: revision}
        delta.note(self._uri, says=numbers, numbers=numbers, fence=fence)

    def _handed_over(self, table: DeltaTable) -> int | None:
        return table.transaction_version(self._HANDED_OVER)


class _Telling(ABC):
    """The changes of an operator as upserts and deletes of what identifies a row in the target.

    `identity`: the columns of which no two told results have the same values. `columns` are told, those of the identity
    included, and `kept` those of them that are told of a deleted result; the others are null.
    """

    identity: tuple[str, ...]
    columns: tuple[str, ...]
    kept: tuple[str, ...]

    def __init__(self, delivery: Delivery, operator: Operator) -> None:
        self._delivery = delivery
        self._operator = operator
        self.known: DataFrame | None = None
        """Rows that the target has from an earlier release, whose ids they keep."""

    @abstractmethod
    def told(self, changes: DataFrame, since: int, until: int) -> DataFrame:
        """Those of the revisions in [since, until), of which `changes` has all: `columns`, `_day`, `_change`,
        `_reason` and `_revision`."""

    @abstractmethod
    def newest(self, changes: DataFrame) -> DataFrame:
        """The newest of the upserts and deletes of each identity after all these `changes`."""

    def _chosen(self, changes: DataFrame) -> DataFrame:
        return chosen_rows(changes, self._delivery, DAY)

    def _as_told(self, signed: DataFrame) -> DataFrame:
        """Signed rows, one for each identity and revision, as they are told."""
        is_there = F.col(SIGN) > 0
        values = [
            F.col(name) if name in self.kept else F.when(is_there, F.col(name)).alias(name) for name in self.columns
        ]
        change = F.when(is_there, F.lit(UPSERT)).otherwise(F.lit(DELETE)).alias(CHANGE)
        return signed.select(*values, DAY, change, REASON, REVISION)


class _ByResultKey(_Telling):
    """Results have a key of their own, by which the target knows them."""

    def __init__(self, delivery: Delivery, operator: Operator) -> None:
        super().__init__(delivery, operator)
        self.identity = self.kept = operator.result_key
        self.columns = operator.columns

    def told(self, changes: DataFrame, since: int, until: int) -> DataFrame:
        # Of a result that is another one now, what it is counts.
        return self._as_told(
            _newest(self._chosen(_of_revisions(changes, since, until)), (*self.identity, REVISION), SIGN)
        )

    def newest(self, changes: DataFrame) -> DataFrame:
        return self._as_told(_newest(self._chosen(changes), self.identity, REVISION, SIGN))


class _ByValues(_Telling):
    """Results have no key, so each has an id of its values; of equal ones each its own."""

    def __init__(self, delivery: Delivery, operator: Operator) -> None:
        super().__init__(delivery, operator)
        self.identity = (RESULT_ID,)
        self.columns = self.kept = (*operator.columns, RESULT_ID)

    def told(self, changes: DataFrame, since: int, until: int) -> DataFrame:
        return self._as_told(self._identified(_of_revisions(changes, since, until)))

    def newest(self, changes: DataFrame) -> DataFrame:
        return self._as_told(_newest(self._identified(changes), self.identity, REVISION, SIGN))

    def _identified(self, changes: DataFrame) -> DataFrame:
        rows = self._chosen(changes)
        text = self._values(rows)
        identified = rows.withColumn(RESULT_ID, _id([text, F.col(COPY)]))
        if self.known is None:
            return identified
        copy = F.row_number().over(SortedBy.partitionBy(_TEXT).orderBy(_KNOWN))
        known = self.known.select(self._values(self.known).alias(_TEXT), F.col(RESULT_ID).alias(_KNOWN))
        known = known.withColumn(_KNOWN_COPY, copy)
        same = [text == known[_TEXT], F.col(COPY) == F.col(_KNOWN_COPY)]
        with_known = identified.join(known, same, "left")
        return with_known.withColumn(RESULT_ID, F.coalesce(_KNOWN, RESULT_ID)).drop(_TEXT, _KNOWN, _KNOWN_COPY)

    def _values(self, rows: DataFrame) -> Column:
        return as_json(comparable(rows, name) for name in self._operator.columns)


class _ByOwnKey(_ByValues):
    """The delivery has a key of its own: of the results that have one, the last in time stands for it.

    A delete tells what was told before, so that it has any key.
    """

    def told(self, changes: DataFrame, since: int, until: int) -> DataFrame:
        rows = self._keyed(self._chosen(_of_revisions(changes, 0, until)))
        asked = _of_revisions(rows, since, until).select(RESULT_ID, F.col(REVISION).alias(_ASKED)).distinct()
        theirs = rows.join(asked.select(RESULT_ID).distinct(), RESULT_ID, "left_semi")
        # Of the revisions before these it counts alone what stood in the end.
        stood = _summed(theirs.where(F.col(REVISION) < since), (), {SIGN: F.sum(SIGN)}).where(F.col(SIGN) > 0)
        stood = stood.withColumn(REVISION, F.lit(since - 1).cast("bigint"))
        events = theirs.where(F.col(REVISION) >= since).unionByName(stood)
        events = events.join(asked, RESULT_ID).where(F.col(REVISION) <= F.col(_ASKED))
        before = F.when(F.col(REVISION) < F.col(_ASKED), F.col(SIGN)).otherwise(0)
        results = _summed(events, (_ASKED,), {_IS: F.sum(SIGN), _WAS: F.sum(before)})
        last = (
            F.max_by(F.struct(_RESULT, _TEXT, REASON), F.when(F.col(name) > 0, F.col(_ORDER))).alias(name)
            for name in (_IS, _WAS)
        )
        of_key, now, was = results.groupBy(RESULT_ID, _ASKED).agg(*last), F.col(_IS), F.col(_WAS)
        changed = of_key.where(~now[_TEXT].eqNullSafe(was[_TEXT])).select(
            RESULT_ID,
            F.col(_ASKED).alias(REVISION),
            F.coalesce(now[_RESULT], was[_RESULT]).alias(_RESULT),
            F.when(now.isNull(), -1).otherwise(1).alias(SIGN),
            F.when(now.isNull(), F.lit(_CORRECTION)).otherwise(now[REASON]).alias(REASON),
        )
        return self._as_told(changed.select(RESULT_ID, REVISION, f"{_RESULT}.*", SIGN, REASON))

    def newest(self, changes: DataFrame) -> DataFrame:
        results = _summed(self._keyed(self._chosen(changes)), (), {_IS: F.sum(SIGN)})
        standing = F.max_by(F.struct(_RESULT, REASON), F.when(F.col(_IS) > 0, F.col(_ORDER)))
        of_key = results.groupBy(RESULT_ID).agg(standing.alias(_IS), F.max_by(_RESULT, _ORDER).alias(_WAS))
        now = F.col(_IS)
        newest = of_key.select(
            RESULT_ID,
            F.coalesce(now[_RESULT], F.col(_WAS)).alias(_RESULT),
            F.when(now.isNull(), -1).otherwise(1).alias(SIGN),
            F.coalesce(now[REASON], F.lit(_CORRECTION)).alias(REASON),
        )
        return self._as_told(newest.select(RESULT_ID, f"{_RESULT}.*", SIGN, REASON, F.lit(0).alias(REVISION)))

    def _keyed(self, rows: DataFrame) -> DataFrame:
        """With the text of each one's key; where that cannot be computed none is shared, as each is a dead letter."""
        delivery, text = self._delivery, self._values(rows)
        key = [delivery.selected[name] for name in delivery.identity]
        of_key = _id([F.expr(sql) for sql in key])
        if any(may_fail(sql, delivery) for sql in key):
            of_key = F.coalesce(guarded(of_key, DAY)["value"], _id([text, F.col(COPY)]))
        result = F.struct(*(F.col(f"`{name}`") for name in (*self._operator.columns, DAY)))
        # The last in time stands; of several of the same time always the same one.
        order = F.struct(*self._operator.times, text)
        named = {RESULT_ID: of_key, _TEXT: text, _ORDER: order, _RESULT: result}
        return rows.select(*(column.alias(name) for name, column in named.items()), SIGN, REASON, REVISION)


def _telling(delivery: Delivery, operator: Operator) -> _Telling:
    if operator.result_key:
        return _ByResultKey(delivery, operator)
    return (_ByValues if delivery.identity == (RESULT_ID,) else _ByOwnKey)(delivery, operator)


def _summed(rows: DataFrame, beside: Sequence[str], sums: Mapping[str, Column]) -> DataFrame:
    """Signed rows of equal results of a key as one, with these sums, and the reason of the newest that adds one."""
    why = F.max_by(REASON, F.when(F.col(SIGN) > 0, F.col(REVISION))).alias(REASON)
    same = [F.first(name).alias(name) for name in (_ORDER, _RESULT)]
    return rows.groupBy(RESULT_ID, _TEXT, *beside).agg(*same, why, *(sum_.alias(name) for name, sum_ in sums.items()))


def _between(held: DataFrame, current: DataFrame, telling: _Telling) -> DataFrame:
    """The changes that take a consumer from the rows `held` to those that are `current`, as `told` has them."""
    named = {name: f"_old_{name}" for name in (*telling.columns, DAY)}
    old = held.select(*(F.col(name).alias(alias) for name, alias in named.items()), F.lit(True).alias(_WAS))
    same = [F.col(name).eqNullSafe(F.col(named[name])) for name in telling.identity]
    both = current.withColumn(_IS, F.lit(True)).join(old, same, "full_outer")
    gone, unequal = F.col(_IS).isNull(), F.col(_WAS).isNull()
    for name in set(telling.columns).difference(telling.identity):
        comparable_types = current.schema[name].dataType == old.schema[named[name]].dataType
        equal = comparable(current, name).eqNullSafe(comparable(old, named[name])) if comparable_types else F.lit(False)
        unequal = unequal | ~equal

    def as_told(name: str) -> Column:
        was = F.col(named[name]) if name in (*telling.kept, DAY) else F.lit(None)
        return F.when(gone, was).otherwise(F.col(name)).alias(name)

    return both.where(gone | unequal).select(
        *map(as_told, named),
        F.when(gone, F.lit(DELETE)).otherwise(F.lit(UPSERT)).alias(CHANGE),
        F.when(gone, F.lit(_CORRECTION)).otherwise(F.col(REASON)).alias(REASON),
        REVISION,
    )


def _newest(changes: DataFrame, identity: Sequence[str], *by: str) -> DataFrame:
    """The change of each identity that is the greatest by these columns, the revision where none are named."""
    others = [name for name in changes.columns if name not in identity]
    newest = F.max_by(F.struct(*others), F.struct(*(by or (REVISION,)))).alias(_RESULT)
    return changes.groupBy(*identity).agg(newest).select(*identity, f"{_RESULT}.*")


def _of_revisions(changes: DataFrame, since: int, until: int) -> DataFrame:
    return changes.where((F.col(REVISION) >= since) & (F.col(REVISION) < until))


def _id(of: Sequence[Column]) -> Column:
    """A text that identifies these values."""
    return F.sha2(as_json(part.alias(f"_{place}") for place, part in enumerate(of)), 256)

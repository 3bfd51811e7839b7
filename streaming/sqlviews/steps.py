"""Steps of an SQL view: the keys that changed rows touch, the query for these alone, and what differs from before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple, Self
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DateType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streaming.base import (
    BATCH,
    COPY,
    DAY,
    REASON,
    SIGN,
    FrozenMapping,
    constant,
    counted,
)
from streaming.changes import ChangePosition, differences, revision_of
from streaming.declare import CHANGES, CURRENT, View
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import (
    MOST_PARTS,
    Batches,
    Coming,
    Effect,
    Outputs,
    Progress,
    Written,
    comparable,
    create_table,
    generation_of,
    net,
)
from streaming.spark import frame_of_arrow, is_equal_in_arrow
from streaming.sql import Place, Query
from streaming.sqlviews.cuts import Cut, Cuts
from streaming.sqlviews.partners import MOST_IN_MEMORY, Changes, Meetings, Partners
from streaming.sqlviews.positions import Position
from streaming.sqlviews.relations import Relation, relations_of
from streaming.tables import EVER, Keys, TimeRange, delta

MOST_TOUCHED = 0.25
"""The share of a view's rows that the touched keys may be in number; where they are more, everything is computed.

Of 100,000 keys of two million rows a tenth alone, which Spark scans all rows for, cost 0.59 of the CPU of all, and a
quarter 0.95.
"""
FEW = 1_000
"""Keys up to which only these are computed, whatever their share."""


class SqlViewSteps:
    """The steps of one SQL view in one process.

    A step takes all that is there: the rows that stand after it are those of the query, however batches are cut.
    """

    def __init__(self, spark: SparkSession, lake: Lake, view: View) -> None:
        self._spark = spark
        self._lake = lake
        self._view = view
        self._outputs = Outputs(lake, view)
        self._streams, self._pinned = relations_of(lake, view)
        self._texts = _Texts(view.query)
        self._cuts = Cuts(lake, view)
        self._cut = Cut({}, {})
        self._is_wide = False

    @property
    def relations(self) -> Mapping[str, Relation]:
        """The relations that the query reads, by name."""
        return {each.name: each for each in (*self._streams, *self._pinned)}

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, all at once; none of a log where only operators have changed.

        Of a stream that an operator has followed, too, they end where that has come to.
        """
        at = Position.of(self._view, delta.open_table(self._lake.table(self._view)))
        cut = self._cuts.newest(at.progress.through, at.revisions)
        newest = {each.name: each.newest() for each in self._pinned}
        if cut is None or any(number < 0 for number in newest.values()):
            return
        self._cut, newest = cut, {**newest, **cut.revisions}
        behind = {
            name: [each for each in batches if each.number <= cut.through.get(name, each.number)]
            for name, batches in self._outputs.behind(at.progress).items()
        }
        comes_to = {name: batches[-1].number if batches else at[name] for name, batches in behind.items()}
        if any(number < cut.through.get(name, number) for name, number in comes_to.items()):
            # Changes of a stream with a key may be behind a history, which follows the revisions themselves.
            return
        if any(behind.values()) or any(number != at[name] for name, number in newest.items()):
            yield behind

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow `batches` and the newest revisions.

        Raises:
            FencedError: another process has taken over.
        """
        table = self._created()
        before = Position.of(self._view, table)
        progress = before.progress.after(batches) if any(batches.values()) else before.progress
        # Steps are counted: one may follow operators alone.
        progress = replace(progress, batch=before.progress.batch + 1)
        revisions = {**{each.name: each.newest() for each in self._pinned}, **self._cut.revisions}
        numbers = self._cuts.numbers(self._cut)
        after = Position(progress, FrozenMapping({**before.revisions, **revisions}))
        changed = [each for each in self.relations.values() if each.has_changed(before[each.name], after[each.name])]
        says = {**after.progress.told_from(before.progress), **({"revisions": revisions} if revisions else {})}
        says |= self._cuts.says(self._cut)

        def fence(there: DeltaTable) -> None:
            before.fence(self._view, there)

        uri = self._lake.table(self._view)
        if not changed and before.progress.batch >= 0:
            delta.note(uri, says=says, numbers=after.numbers() | numbers, fence=fence)
            return Written(0)
        with NamedRows(self._spark) as frames:
            differing = self._differing(frames, table, before, after, changed)
            staged = delta.stage(self._told(differing, after), uri, table=table, statistics=(BATCH,))
            staged.commit(says, after.numbers() | numbers, fence=fence)
        return Written(staged.rows)

    def _differing(
        self,
        frames: NamedRows,
        table: DeltaTable,
        before: Position,
        after: Position,
        changed: list[Relation],
    ) -> DataFrame:
        """The rows that the step adds and takes back: the columns of the query, `_copy`, `_change` and `_reason`."""
        names, begins = self._view.columns, before.progress.batch < 0
        standing = _RowsNow(frames, self._texts, self.relations, after)
        current = None if begins else self._published(table)
        touched = None if begins else self._touched(standing, current or table, before, after, changed)
        if touched is None:
            rows = standing.query(self._texts.whole)
            was = None if begins else self._stored(current, table)
        else:
            keys = touched.keys
            near, are_whole = self._near(frames, touched, after)
            if not are_whole:
                frames.add(frame_of_arrow(self._spark, keys), self._texts.keys)
            rows = standing.query(self._texts.restricted(_have_nulls(keys), near, are_whole))
            was = self._stored_of(current, table, keys)
        return differences(rows, was, names, "first" if begins else "update")

    def _near(self, frames: NamedRows, touched: _Touched, after: Position) -> tuple[frozenset[Place], bool]:
        """The places of the query for which the rows of the keys were found, or those near them, and have a name.

        True with them if the rows in one of them are those with whole keys.
        """
        keys, found, are_whole = touched.keys, dict[Place, pa.Table](), False
        if keys.num_rows > MOST_IN_MEMORY:
            return frozenset(), are_whole
        for place, keyed in self._view.query.keyed_places.items():
            relation = self.relations[keyed.relation]
            of_key = {
                name: column for name, column in keyed.keyed.items() if self._is_same(relation.name, name, column)
            }
            if not of_key:
                continue
            own = pa.table({name: keys[column] for name, column in of_key.items()})
            rows = touched.partners(relation.name, own, keyed.columns)
            if rows is None:
                times = self._meetings.times(place, found) or EVER
                rows = relation.among(after[relation.name], Keys(own), keyed.columns, MOST_IN_MEMORY, times)
            if rows is not None:
                frames.add(self._frame(relation.name, rows), self._texts.near(place))
                found[place] = rows
                are_whole |= {*of_key.values()} == {*self._view.query.key}
        near = {*found}
        for place in (each for each in self._meetings.places_in_time if each not in found):
            if bounded := self._meetings.times(place, found):
                relation = self.relations[self._view.query.places[place]]
                frames.add(relation.near(self._spark, after[relation.name], bounded), self._texts.near(place))
                near.add(place)
        return frozenset(near), are_whole

    def _is_same(self, relation: str, name: str, column: str) -> bool:
        """True where a column of a relation and one of the key have the same values for Arrow as for Spark."""
        type_ = self._types[relation][name].dataType
        return type_ == self._result[column].dataType and is_equal_in_arrow(type_)

    def _stored_of(self, current: DeltaTable | None, table: DeltaTable, keys: pa.Table) -> DataFrame:
        """The rows of some keys that stand; `current` and `table` are those of `_stored`."""
        key, names = self._view.query.key, self._view.columns
        are_few = keys.num_rows <= MOST_IN_MEMORY
        if current is not None and are_few and all(is_equal_in_arrow(self._result[name].dataType) for name in key):
            rows = delta.among(current, Keys(keys), names, MOST_IN_MEMORY)
            if rows is not None:
                return frame_of_arrow(self._spark, rows, StructType([self._result[name] for name in names]))
        return _of_keys(self._stored(current, table), frame_of_arrow(self._spark, keys), key, _have_nulls(keys))

    def _touched(
        self,
        standing: _RowsNow,
        current: DeltaTable,
        before: Position,
        after: Position,
        changed: list[Relation],
    ) -> _Touched | None:
        """The keys that changed rows may touch; None where it is cheaper, or the only way, to compute all.

        `current` is an open table of about as many rows as the view has.
        """
        if not self._view.query.key:
            return None
        if (keys := self._plainly_touched(before, after, changed)) is not None:
            return _Touched(keys)
        signed = {each.name: each.signed(self._spark, before[each.name], after[each.name]) for each in changed}
        told = {name: rows for name, rows in signed.items() if rows is not None}
        if len(told) < len(signed):
            return None
        # What stands by now lacks the rows that were taken back.
        changes = Changes(changed, before, after, self._meetings.columns_of_changes(frozenset(signed)))
        times = self._meetings.times_of_changes(changes)
        partners = self._meetings.partners_of_changes(changes, times)
        found = {name: self._frame(name, pa.concat_tables(each.rows for each in of)) for name, of in partners.items()}
        keys = self._keys(standing.near(times, found), told, -1, delta.row_count(current))
        return None if keys is None else _Touched(keys, partners)

    def _frame(self, relation: str, rows: pa.Table) -> DataFrame:
        """A frame of rows of a relation."""
        types = StructType([self._types[relation][name] for name in rows.column_names])
        return frame_of_arrow(self._spark, rows, types)

    def _plain_key(self, relation: str) -> Mapping[str, str]:
        """The columns of a relation with the whole key, by the columns of the key; none where Arrow has other keys."""
        plain = self._view.query.plain_key(relation)
        return plain if all(self._is_same(relation, plain[column], column) for column in plain) else {}

    def _plainly_touched(self, before: Position, after: Position, changed: Sequence[Relation]) -> pa.Table | None:
        """The keys that changed rows may touch, where these have the whole key and are few; starts no Spark."""
        plain_keys, parts = {each.name: self._plain_key(each.name) for each in changed}, list[pa.Table]()
        if not all(plain_keys.values()):
            return None
        columns = {name: [*dict.fromkeys(plain.values())] for name, plain in plain_keys.items()}
        changes = Changes(changed, before, after, columns)
        for name, plain in plain_keys.items():
            rows = changes.rows(name)
            if rows is None:
                return None
            parts.append(pa.table({column: rows[plain[column]] for column in self._view.query.key}))
        keys = pa.concat_tables(parts).group_by([*self._view.query.key]).aggregate([])
        # Of more, those of rows that no condition leaves out are worth a job.
        return keys if keys.num_rows <= FEW else None

    def _keys(
        self,
        standing: _RowsNow,
        signed: Mapping[str, DataFrame],
        missing: Literal[1, -1],
        number: int,
    ) -> pa.Table | None:
        """The keys that `signed` rows of relations may touch; None where all is to be computed.

        Of these, rows with the sign that is `missing` are not among those that are `standing`. `number` is how many
        rows the view has, about.
        """
        written, read = self._texts.affected(frozenset(signed))
        for name, rows in signed.items():
            standing.frames.add(rows.drop(SIGN), self._texts.changes(name))
            if name in read:
                # Of rows that were found for the changed ones only those columns are there that the query reads.
                others = rows.where(F.col(SIGN) == missing).select(*(f"`{each}`" for each in standing[name].columns))
                standing.frames.add(standing[name].unionByName(others), self._texts.ever(name))
        most = max(FEW, int(MOST_TOUCHED * number))
        try:
            found = standing.query(written).limit(most + 1).toArrow()
        except (PySparkException, Py4JJavaError):
            # A key may be computable only of rows that meet, and here rows meet that never stood together.
            return None
        return None if found.num_rows > most else found

    def effect(self, coming: Coming) -> Effect | None:
        """The effect that rows to come would have; None where nothing is followed yet."""
        table = delta.open_table(self._lake.table(self._view))
        newest = {each.name: head(self._lake, each) for each in self._view.follows}
        if table is None or None in newest.values():
            return None
        at = {name: batch.number for name, batch in newest.items() if batch is not None}
        at |= {each.name: each.newest() for each in self._pinned}
        if any(number < 0 for number in at.values()):
            return None
        current = self._published(table)
        standing = delta.row_count(current) if current is not None else self._stored(None, table).count()
        if not self._view.query.key:
            return _effect_on_keys(self._view, None, standing)
        name = coming.stream.name
        (changed,) = (each for each in self._streams if each.name == name)
        with NamedRows(self._spark) as frames:
            rows = _RowsNow(frames, self._texts, self.relations, at)
            keys = self._keys(rows, {name: changed.signed_in(coming.rows)}, 1, standing)
        return _effect_on_keys(self._view, keys, standing)

    def _published(self, table: DeltaTable) -> DeltaTable | None:
        """The open table of what is published; None where the open table of the view is ahead, or has other types."""
        changes, current = (delta.open_table(self._lake.table(self._view, to)) for to in (CHANGES, CURRENT))
        if current is None or changes is None:
            return None
        told, at = ChangePosition.of(changes), Progress.of(self._view, table)
        is_same = (told.step, told.of_generation) == (at.batch, generation_of(table))
        if not is_same or revision_of(current) != told.revision:
            return None
        # A struct that has got a field has it in the table of the view first.
        types = ({field.name: field.dataType for field in delta.columns_of(each)} for each in (current, table))
        published, own = ([of.get(name) for name in self._view.columns] for of in types)
        return current if published == own else None

    def _stored(self, current: DeltaTable | None, table: DeltaTable) -> DataFrame:
        """The rows that stand: those of an open table of what is published, or else of the open table of the view."""
        if current is not None:
            return delta.read(self._spark, self._lake.table(self._view, CURRENT), current.version())
        return rows_standing(delta.read(self._spark, self._lake.table(self._view), table.version()), self._view)

    def _told(self, differing: DataFrame, after: Position) -> DataFrame:
        # Only a column that may be null keeps the number out of the code that Spark generates.
        nullable = next((f"`{field.name}`" for field in self._result if field.nullable), None)
        number = after.progress.batch
        batch = F.lit(number).cast("bigint") if nullable is None else constant(number, nullable)
        told = differing.withColumns({BATCH: batch, DAY: day_of(self._view, self._result)})
        return told.select(*(f"`{name}`" for name in self._schema.names))

    def _created(self) -> DeltaTable:
        """Its own table, open, with the columns of the query."""
        uri = self._lake.table(self._view)
        if not self._is_wide:
            uri = create_table(self._lake, self._view, "", self._schema, partition_by=())
            delta.widen(uri, self._schema)
            self._is_wide = True
        return delta.opened(uri)

    @cached_property
    def _meetings(self) -> Meetings:
        return Meetings(self._view.query, self.relations, self._types)

    @cached_property
    def _types(self) -> Mapping[str, StructType]:
        """The columns of each relation."""
        return {name: each.none(self._spark).schema for name, each in self.relations.items()}

    @cached_property
    def _result(self) -> StructType:
        """The columns of the query, with the types that Spark gives them."""
        with NamedRows(self._spark) as frames:
            none = {name: frames.add(self._spark.createDataFrame([], types)) for name, types in self._types.items()}
            return frames.query(self._view.query.text(none.__getitem__)).schema

    @cached_property
    def _schema(self) -> StructType:
        """The columns of its own table."""
        values = [StructField(field.name, field.dataType) for field in self._result]
        types = {COPY: IntegerType(), SIGN: IntegerType(), REASON: StringType(), BATCH: LongType(), DAY: DateType()}
        return StructType([*values, *(StructField(name, type_) for name, type_ in types.items())])


class _Touched(NamedTuple):
    """Keys that changed rows may touch, and the rows of relations that were found on the way to them."""

    keys: pa.Table
    partners_of: Mapping[str, Sequence[Partners]] = FrozenMapping({})

    def partners(self, relation: str, keys: pa.Table, columns: Sequence[str]) -> pa.Table | None:
        """Columns of the rows of a relation that have one of some keys; None where they have not been found yet."""
        told = (each.of(keys, columns) for each in self.partners_of.get(relation, ()))
        return next((rows for rows in told if rows is not None), None)


@dataclass(frozen=True)
class _Text:
    """SQL, and the relations of which it reads all rows that stand."""

    sql: str
    read: frozenset[str]


class _Texts:
    """The SQL of one view over names that stay the same from step to step, so that it is written once."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._own = uuid4().hex
        self._restricted: dict[tuple[bool, frozenset[Place], bool], _Text] = {}
        self._affected: dict[frozenset[str], tuple[_Text, frozenset[str]]] = {}

    def now(self, relation: str) -> str:
        """The name of the rows of a relation that stand."""
        return f"_tidemark_{self._own}_now_{relation}"

    def changes(self, relation: str) -> str:
        """The name of the rows of a relation that were added or taken back."""
        return f"_tidemark_{self._own}_changes_{relation}"

    def ever(self, relation: str) -> str:
        """The name of the rows of a relation that stand, and of those that were taken back."""
        return f"_tidemark_{self._own}_ever_{relation}"

    def near(self, place: Place) -> str:
        """The name of rows of a relation among which are those that some keys need in a place."""
        return f"_tidemark_{self._own}_near_{[*self._query.places].index(place)}"

    @property
    def keys(self) -> str:
        """The name of the keys that are computed."""
        return f"_tidemark_{self._own}_keys"

    @cached_property
    def whole(self) -> _Text:
        """The whole query."""
        return _Text(self._query.text(self.now), frozenset(self._query.relations))

    def restricted(self, have_nulls: bool, near: frozenset[Place], are_whole: bool) -> _Text:
        """The query for some keys, of which values may be null or not, with the rows that they need in some places.

        `are_whole`: the rows in one of these are those with whole keys.
        """
        asked = have_nulls, near, are_whole
        if asked not in self._restricted:
            elsewhere = {relation for place, relation in self._query.places.items() if place not in near}
            names, keys = {place: self.near(place) for place in near}, "" if are_whole else self.keys
            sql = self._query.restricted(self.now, keys, have_nulls=have_nulls, near=names)
            self._restricted[asked] = _Text(sql, frozenset(elsewhere))
        return self._restricted[asked]

    def affected(self, changed: frozenset[str]) -> tuple[_Text, frozenset[str]]:
        """The query for the keys that changed rows of these relations may touch.

        With it come those of these relations whose rows `ever` it reads.
        """
        if changed not in self._affected:
            read = set[str]()

            def ever(relation: str) -> str:
                read.add(relation)
                return self.ever(relation) if relation in changed else self.now(relation)

            sql = self._query.affected(changed, self.changes, ever)
            self._affected[changed] = _Text(sql, frozenset(read - changed)), frozenset(read & changed)
        return self._affected[changed]


class NamedRows:
    """Frames by names that SQL may read them by, for as long as it is open."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._names: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._names:
            self.spark.catalog.dropTempView(name)

    def add(self, rows: DataFrame, name: str = "") -> str:
        """The name of a frame from now on, one that nobody else has where none is given."""
        name = name or f"_tidemark_{uuid4().hex}"
        rows.createOrReplaceTempView(name)
        self._names.add(name)
        return name

    def query(self, text: str) -> DataFrame:
        """The rows of a query over names that were given; they can be read once the names are gone."""
        return self.spark.sql(text)


@dataclass
class _RowsNow:
    """The rows of relations that stand at a position, each of which has its name once a query reads it."""

    frames: NamedRows
    texts: _Texts
    relations: Mapping[str, Relation]
    at: Position | Mapping[str, int]
    times: Mapping[str, TimeRange] = field(default_factory=dict)
    """The times of relations of which no other rows are needed."""
    found: Mapping[str, DataFrame] = field(default_factory=dict)
    """The rows of relations of which no others are needed, with the columns that are read of them."""
    _rows: dict[str, DataFrame] = field(default_factory=dict)

    def __getitem__(self, relation: str) -> DataFrame:
        if relation not in self._rows:
            self._rows[relation] = self._read(relation)
            self.frames.add(self._rows[relation], self.texts.now(relation))
        return self._rows[relation]

    def _read(self, relation: str) -> DataFrame:
        if relation in self.found:
            return self.found[relation]
        of, spark, through = self.relations[relation], self.frames.spark, self.at[relation]
        times = self.times.get(relation)
        return of.now(spark, through) if times is None else of.near(spark, through, times)

    def near(self, times: Mapping[str, TimeRange], found: Mapping[str, DataFrame]) -> _RowsNow:
        """The rows of some times of relations, or those `found`; their names are these until all of them are read."""
        return _RowsNow(self.frames, self.texts, self.relations, self.at, times, found) if times or found else self

    def query(self, text: _Text) -> DataFrame:
        """The rows of a query."""
        for relation in text.read:
            _ = self[relation]
        return self.frames.query(text.sql)


def day_of(view: View, columns: StructType) -> Column:
    """The date of the first column of the key with a time, by the columns of the query; null where there is none."""
    times = (name for name in view.query.key if isinstance(columns[name].dataType, (DateType, TimestampType)))
    name = next(times, None)
    return F.lit(None).cast("date") if name is None else F.to_date(f"`{name}`")


def _effect_on_keys(view: View, keys: pa.Table | None, standing: int) -> Effect:
    """The effect of computing some keys anew, or all where these are None, of a view of so many rows."""
    if keys is None:
        summary = f"all would be computed anew, which is {counted(standing, 'row')} now"
        return Effect(view.name, summary, {"standing": standing})
    # Arrow orders no arrays and maps.
    sorted_by = [(each.name, "ascending") for each in keys.schema if not pa.types.is_nested(each.type)]
    in_order = keys.sort_by(sorted_by) if sorted_by else keys
    return Effect(
        view.name,
        f"{counted(keys.num_rows, 'key')} would be computed anew, of {counted(standing, 'row')} that the view has now",
        {"keys": keys.num_rows, "standing": standing},
        tuple(in_order.slice(0, MOST_PARTS).to_pylist()),
        max(keys.num_rows - MOST_PARTS, 0),
    )


def rows_standing(signed: DataFrame, view: View) -> DataFrame:
    """The rows that steps have added and not taken back: the columns of the query, `_copy`, `_day` and `_reason`."""
    keys = {f"_key{place}": comparable(signed, name) for place, name in enumerate(view.columns)}
    standing = net(signed.withColumns(keys), [*keys, COPY], [BATCH])
    return standing.select(*(f"`{name}`" for name in view.columns), COPY, DAY, REASON)


def _have_nulls(keys: pa.Table) -> bool:
    return any(column.null_count for column in keys.columns)


def _of_keys(rows: DataFrame, keys: DataFrame, key: tuple[str, ...], have_nulls: bool) -> DataFrame:
    """The rows of some keys."""
    pairs = [(rows[f"`{name}`"], keys[f"`{name}`"]) for name in key]
    same = [one.eqNullSafe(other) if have_nulls else one == other for one, other in pairs]
    return rows.join(F.broadcast(keys), same, "left_semi")

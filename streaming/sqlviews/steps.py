"""Steps of an SQL view: the keys that changed rows touch, the query for these alone, and what differs from before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Literal, NamedTuple, Self
from uuid import uuid4

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from streaming.base import (
    BATCH,
    COPY,
    DAY,
    FIRST_INSTANT,
    LAST_MILLISECOND,
    REASON,
    SIGN,
    FrozenMapping,
    constant,
    counted,
    from_micros,
    to_micros,
)
from streaming.changes import ChangePosition, differences, revision_of
from streaming.declare import CHANGES, CURRENT, ExternalTable, Operator, View
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import (
    MOST_PARTS,
    REVISION_OF,
    Batches,
    Coming,
    Effect,
    Outputs,
    Progress,
    Written,
    comparable,
    create_table,
    generation_of,
    moved_on,
    net,
    revision_followed,
)
from streaming.spark import frame_of_arrow
from streaming.sql import Distance, Place, Query
from streaming.sqlviews.cuts import Cut, Cuts
from streaming.sqlviews.relations import Relation, relations_of
from streaming.tables import EVER, MOST_FOUND, Keys, TimeRange, delta

MOST_TOUCHED = 0.25
"""The share of a view's rows that the touched keys may be in number; where they are more, everything is computed.

Of 100,000 keys of two million rows a tenth alone, which Spark scans all rows for, cost 0.59 of the CPU of all, and a
quarter 0.95.
"""
MOST_IN_MEMORY = 500_000
"""Rows of some keys that are found in files and handed to Spark, which scans all rows for those of more.

To find and hand over 200,000 of 20 million rows takes half of the CPU of Spark's scan. `MOST_FOUND` bounds their bytes.
"""
FEW = 1_000
"""Keys up to which only these are computed, whatever their share."""


@dataclass(frozen=True)
class Position:
    """The point up to which an SQL view has followed its sources: batches of streams, `revisions` of all others."""

    progress: Progress
    revisions: Mapping[str, int]

    @classmethod
    def of(cls, view: View, table: DeltaTable | None) -> Position:
        """The position that an open table of the view records."""
        others: tuple[Operator | ExternalTable, ...] = (*view.reads_current, *view.external)
        revisions = {each.name: revision_followed(table, each) for each in others}
        return cls(Progress.of(view, table), FrozenMapping(revisions))

    def __getitem__(self, relation: str) -> int:
        return self.revisions[relation] if relation in self.revisions else self.progress.through[relation]

    def numbers(self) -> dict[str, int]:
        """The numbers by which a table keeps this position."""
        return {**self.progress.numbers(), **{REVISION_OF.format(name): at for name, at in self.revisions.items()}}

    def fence(self, view: View, table: DeltaTable) -> None:
        """Refuse a step that begins at this position where the open table has another one by now.

        Raises:
            FencedError: another process has taken over.
        """
        self.progress.fence(view, table)
        there = Position.of(view, table)
        if there != self:
            raise moved_on(view, str(dict(self.revisions)), str(dict(there.revisions)))


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
        self._distances_of = dict[frozenset[str], Mapping[str, Sequence[Sequence[Distance]]]]()
        self._equalities_of = dict[frozenset[str], Mapping[str, Sequence[Sequence[Distance]]]]()
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
                times = self._times(place, self._distances, found) or EVER
                rows = relation.among(after[relation.name], Keys(own), keyed.columns, MOST_IN_MEMORY, times)
            if rows is not None:
                frames.add(self._frame(relation.name, rows), self._texts.near(place))
                found[place] = rows
                are_whole |= {*of_key.values()} == {*self._view.query.key}
        near = {*found}
        for place in dict.fromkeys(each.place for each in self._distances if each.place not in found):
            if bounded := self._times(place, self._distances, found):
                relation = self.relations[self._view.query.places[place]]
                frames.add(relation.near(self._spark, after[relation.name], bounded), self._texts.near(place))
                near.add(place)
        return frozenset(near), are_whole

    def _times(self, place: Place, distances: Sequence[Distance], near: Mapping[Place, pa.Table]) -> TimeRange | None:
        """The times of the rows in a place that rows in other places may need; None where these bound none."""
        column = self.relations[self._view.query.places[place]].time
        known = [each for each in distances if (each.place, each.column) == (place, column) and each.of_place in near]
        spans = [_moved(near[each.of_place][each.of_column], each) for each in known]
        if not spans:
            return None
        return max(since for since, _ in spans), min(until for _, until in spans)

    @cached_property
    def _distances(self) -> Sequence[Distance]:
        """The distances in time between the rows that some keys need."""
        return self._view.query.distances(self._is_time)

    def _in_time(self, relation: str, distances: Sequence[Distance]) -> Sequence[Distance]:
        """Those of the distances that bound the time by which rows of a relation are found."""
        return [each for each in distances if each.column == self.relations[relation].time]

    def _is_time(self, relation: str, column: str) -> bool:
        return isinstance(self._types[relation][column].dataType, TimestampType)

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
        times = self._times_of_changes(before, after, changed)
        partners = self._partners_of_changes(before, after, changed, times)
        found = {name: self._frame(name, pa.concat_tables(each.rows for each in of)) for name, of in partners.items()}
        keys = self._keys(standing.near(times, found), told, -1, delta.row_count(current))
        return None if keys is None else _Touched(keys, partners)

    def _frame(self, relation: str, rows: pa.Table) -> DataFrame:
        """A frame of rows of a relation."""
        types = StructType([self._types[relation][name] for name in rows.column_names])
        return frame_of_arrow(self._spark, rows, types)

    def _times_of_changes(
        self, before: Position, after: Position, changed: Sequence[Relation]
    ) -> Mapping[str, TimeRange]:
        """The times of the rows of relations that rows which changed may be in a row of the result with."""
        query, times = self._view.query, dict[str, TimeRange]()
        names = frozenset(each.name for each in changed)
        if names not in self._distances_of:
            self._distances_of[names] = {
                name: in_time
                for name, told in query.distances_of_changes(names, self._is_time).items()
                if all(in_time := [self._in_time(name, each) for each in told])
            }
        for name, of_places in self._distances_of[names].items():
            near = dict[Place, pa.Table]()
            for at, columns in {each[0].of_place: {one.of_column for one in each} for each in of_places}.items():
                relation = self.relations[query.places[at]]
                since, through = before[relation.name], after[relation.name]
                rows = relation.changed(since, through, sorted(columns), MOST_IN_MEMORY)
                if rows is not None:
                    near[at] = rows
            place = of_places[0][0].place
            spans = [self._times(place, distances, near) for distances in of_places]
            known = [each for each in spans if each is not None]
            if len(known) == len(spans):
                times[name] = min(since for since, _ in known), max(until for _, until in known)
        return times

    def _partners_of_changes(
        self, before: Position, after: Position, changed: Sequence[Relation], times: Mapping[str, TimeRange]
    ) -> Mapping[str, Sequence[_Partners]]:
        """The rows of relations that rows which changed are joined with by equal columns, where Arrow finds them."""
        query = self._view.query
        partners, size = dict[str, Sequence[_Partners]](), 0
        for name, of_places in self._equalities_from(frozenset(each.name for each in changed)).items():
            values = [self._values_of_changes(before, after, same) for same in of_places]
            known = [each for each in values if each is not None]
            if len(known) < len(values):
                continue
            read, within, parts = query.columns_read(of_places[0][0].place), times.get(name, EVER), list[_Partners]()
            for keys in map(Keys, known):
                rows = self.relations[name].among(after[name], keys, read, MOST_IN_MEMORY, within)
                size += 0 if rows is None else rows.nbytes
                if rows is None or size > MOST_FOUND:
                    break
                parts.append(_Partners(keys, rows, within))
            else:
                partners[name] = parts
        return partners

    def _values_of_changes(self, before: Position, after: Position, same: Sequence[Distance]) -> pa.Table | None:
        """The values that columns must have to equal those of the rows that changed in a place, by these columns."""
        relation = self.relations[self._view.query.places[same[0].of_place]]
        columns = {each.column: each.of_column for each in same}
        since, through = before[relation.name], after[relation.name]
        rows = relation.changed(since, through, [*dict.fromkeys(columns.values())], MOST_IN_MEMORY)
        # Null equals nothing.
        told = {} if rows is None else {column: rows[of_column] for column, of_column in columns.items()}
        return pa.table(told).drop_null() if told else None

    def _equalities_from(self, changed: frozenset[str]) -> Mapping[str, Sequence[Sequence[Distance]]]:
        """The columns of relations that must equal those of changed ones, where Arrow finds the same equal as Spark."""
        if changed not in self._equalities_of:
            self._equalities_of[changed] = {
                name: in_arrow
                for name, told in self._view.query.equalities_of_changes(changed).items()
                if all(in_arrow := [[each for each in same if self._is_equal(each)] for same in told])
            }
        return self._equalities_of[changed]

    def _is_equal(self, distance: Distance) -> bool:
        places = self._view.query.places
        one = self._types[places[distance.place]][distance.column].dataType
        other = self._types[places[distance.of_place]][distance.of_column].dataType
        return one == other and is_equal_in_arrow(one)

    def _plainly_touched(self, before: Position, after: Position, changed: list[Relation]) -> pa.Table | None:
        """The keys that changed rows may touch, where these have the whole key and are few; starts no Spark."""
        query, parts = self._view.query, list[pa.Table]()
        plain_keys = {each.name: query.plain_key(each.name) for each in changed}
        for name, plain in plain_keys.items():
            if not plain or not all(self._is_same(name, plain[column], column) for column in query.key):
                return None
        for each in changed:
            plain = plain_keys[each.name]
            rows = each.changed(before[each.name], after[each.name], [*dict.fromkeys(plain.values())], MOST_IN_MEMORY)
            if rows is None:
                return None
            parts.append(pa.table({column: rows[plain[column]] for column in query.key}))
        keys = pa.concat_tables(parts).group_by([*query.key]).aggregate([])
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
        """The open table of what is published, where that is as far as the open table of the view; None otherwise."""
        changes, current = (delta.open_table(self._lake.table(self._view, to)) for to in (CHANGES, CURRENT))
        if current is None or changes is None:
            return None
        told, at = ChangePosition.of(changes), Progress.of(self._view, table)
        is_same = (told.step, told.of_generation) == (at.batch, generation_of(table))
        return current if is_same and revision_of(current) == told.revision else None

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


class _Partners(NamedTuple):
    """All rows of a relation, of some times, that have one of the keys."""

    keys: Keys
    rows: pa.Table
    times: TimeRange

    def of(self, keys: pa.Table, columns: Sequence[str]) -> pa.Table | None:
        """Columns of all rows of the relation that have one of some keys; None where they are not all here."""
        is_here = self.times == EVER and {*self.keys.schema.names} == {*keys.column_names}
        if not is_here or not all(self.keys.are_of(batch).all() for batch in keys.to_batches()):
            return None
        own, rows = Keys(keys), self.rows.select(columns)
        here = [batch.take(pa.array(own.places_in(batch))) for batch in rows.to_batches()]
        return pa.Table.from_batches(here, rows.schema)


class _Touched(NamedTuple):
    """Keys that changed rows may touch, and the rows of relations that were found on the way to them."""

    keys: pa.Table
    partners_of: Mapping[str, Sequence[_Partners]] = FrozenMapping({})

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


def _moved(values: pa.ChunkedArray, distance: Distance) -> TimeRange:
    """The times that are so far from some instants; from the last to the first one where there are none."""
    micros = np.asarray(values.drop_null().cast(pa.int64()))
    first, last = to_micros(FIRST_INSTANT), to_micros(LAST_MILLISECOND)
    if not len(micros):
        return LAST_MILLISECOND, FIRST_INSTANT
    since = first if distance.least is None else int(micros.min()) + distance.least
    until = last if distance.greatest is None else int(micros.max()) + distance.greatest
    # A bound beyond the last instant leaves out no row, and one at it stands for none.
    return from_micros(min(max(since, first), last)), from_micros(min(max(until, first), last))


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


def is_equal_in_arrow(type_: DataType) -> bool:
    """True where Arrow finds the same values equal as Spark, by whose rules zeros have no sign."""
    # A text of a collation is another type.
    return type_ == StringType() or isinstance(
        type_, (IntegralType, DecimalType, DateType, TimestampType, TimestampNTZType, BooleanType, BinaryType)
    )


def _have_nulls(keys: pa.Table) -> bool:
    return any(column.null_count for column in keys.columns)


def _of_keys(rows: DataFrame, keys: DataFrame, key: tuple[str, ...], have_nulls: bool) -> DataFrame:
    """The rows of some keys."""
    pairs = [(rows[f"`{name}`"], keys[f"`{name}`"]) for name in key]
    same = [one.eqNullSafe(other) if have_nulls else one == other for one, other in pairs]
    return rows.join(F.broadcast(keys), same, "left_semi")

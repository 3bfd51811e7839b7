"""Partners: the rows of an SQL view's relations that may be in a row of the result with some others.

Its query bounds them by times and by equal columns, and Arrow finds them in files; nothing here starts a job of Spark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType, TimestampType

from streaming.base import FIRST_INSTANT, LAST_MILLISECOND, from_micros, to_micros
from streaming.spark import is_equal_in_arrow
from streaming.sql import Distance, Equality, Place, Query
from streaming.sqlviews.positions import Position
from streaming.sqlviews.relations import Relation
from streaming.tables import EVER, MOST_FOUND, Keys, TimeRange

MOST_IN_MEMORY = 500_000
"""Rows of some keys that are found in files and handed to Spark, which scans all rows for those of more.

To find and hand over 200,000 of 20 million rows takes half of the CPU of Spark's scan. `MOST_FOUND` bounds their bytes.
"""


class Changes:
    """The rows of relations that were added or taken back between two positions; those of each are read once."""

    def __init__(
        self, relations: Iterable[Relation], before: Position, through: Position, columns: Mapping[str, Sequence[str]]
    ) -> None:
        self._relations = {each.name: each for each in relations}
        self._before = before
        self.through = through
        self._columns = columns
        self._rows: dict[str, pa.Table | None] = {}

    @property
    def names(self) -> frozenset[str]:
        """The relations, by name."""
        return frozenset(self._relations)

    def rows(self, relation: str) -> pa.Table | None:
        """The columns of a relation's rows that were asked for; None where Arrow does not find them, or too many."""
        if relation not in self._rows:
            since, through = self._before[relation], self.through[relation]
            columns = self._columns.get(relation, ())
            self._rows[relation] = self._relations[relation].changed(since, through, columns, MOST_IN_MEMORY)
        return self._rows[relation]


class Partners(NamedTuple):
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


class Meetings:
    """The bounds that the query of a view sets to rows of its relations that are in a row of the result together."""

    def __init__(self, query: Query, relations: Mapping[str, Relation], types: Mapping[str, StructType]) -> None:
        self._query = query
        self._relations = relations
        self._types = types
        self._distances_of = dict[frozenset[str], Mapping[str, Sequence[Sequence[Distance]]]]()
        self._equalities_of = dict[frozenset[str], Mapping[str, Sequence[Sequence[Equality]]]]()

    @property
    def places_in_time(self) -> Collection[Place]:
        """The places of which the times of rows may be bounded by those of rows in other places."""
        return dict.fromkeys(each.place for each in self._distances)

    def times(self, place: Place, near: Mapping[Place, pa.Table]) -> TimeRange | None:
        """The times of the rows in a place that rows in other places may need; None where these bound none."""
        return self._times(place, self._distances, near)

    def columns_of_changes(self, changed: frozenset[str]) -> Mapping[str, Sequence[str]]:
        """The columns by which changed rows of relations tell what they may meet."""
        told: list[Sequence[Sequence[Distance | Equality]]] = [
            *self._distances_from(changed).values(),
            *self._equalities_from(changed).values(),
        ]
        read: dict[str, dict[str, None]] = {}
        for bound in chain.from_iterable(chain.from_iterable(told)):
            read.setdefault(self._query.places[bound.of_place], {})[bound.of_column] = None
        return {name: [*columns] for name, columns in read.items()}

    def times_of_changes(self, changes: Changes) -> Mapping[str, TimeRange]:
        """The times of the rows of relations that changed rows may be in a row of the result with."""
        times = dict[str, TimeRange]()
        for name, of_places in self._distances_from(changes.names).items():
            rows_at = {each[0].of_place: changes.rows(self._query.places[each[0].of_place]) for each in of_places}
            near = {at: rows for at, rows in rows_at.items() if rows is not None}
            spans = [self._times(distances[0].place, distances, near) for distances in of_places]
            known = [each for each in spans if each is not None]
            if len(known) == len(spans):
                times[name] = min(since for since, _ in known), max(until for _, until in known)
        return times

    def partners_of_changes(self, changes: Changes, times: Mapping[str, TimeRange]) -> Mapping[str, Sequence[Partners]]:
        """The rows of relations, of some times, that changed rows are joined with by equal columns."""
        partners, size = dict[str, Sequence[Partners]](), 0
        for name, of_places in self._equalities_from(changes.names).items():
            values = [self._values_of(changes, same) for same in of_places]
            known = [each for each in values if each is not None]
            if len(known) < len(values):
                continue
            read, within = self._query.columns_read(of_places[0][0].place), times.get(name, EVER)
            found = self._found(name, changes.through[name], map(Keys, known), read, within, MOST_FOUND - size)
            if found is not None:
                partners[name] = found
                size += sum(each.rows.nbytes for each in found)
        return partners

    def _found(
        self, name: str, through: int, of: Iterable[Keys], read: Sequence[str], within: TimeRange, most: int
    ) -> Sequence[Partners] | None:
        """The rows of a relation that have one of the keys, for each of some keys; None for more bytes than `most`."""
        found, size = list[Partners](), 0
        for keys in of:
            rows = self._relations[name].among(through, keys, read, MOST_IN_MEMORY, within)
            size += 0 if rows is None else rows.nbytes
            if rows is None or size > most:
                return None
            found.append(Partners(keys, rows, within))
        return found

    def _values_of(self, changes: Changes, same: Sequence[Equality]) -> pa.Table | None:
        """The values that columns must have to equal those of the rows that changed in a place."""
        rows = changes.rows(self._query.places[same[0].of_place])
        # Null equals nothing.
        return None if rows is None else pa.table({each.column: rows[each.of_column] for each in same}).drop_null()

    def _times(self, place: Place, distances: Sequence[Distance], near: Mapping[Place, pa.Table]) -> TimeRange | None:
        column = self._relations[self._query.places[place]].time
        known = [each for each in distances if (each.place, each.column) == (place, column) and each.of_place in near]
        spans = [_moved(near[each.of_place][each.of_column], each) for each in known]
        if not spans:
            return None
        return max(since for since, _ in spans), min(until for _, until in spans)

    @cached_property
    def _distances(self) -> Sequence[Distance]:
        return self._query.distances(self._is_time)

    def _distances_from(self, changed: frozenset[str]) -> Mapping[str, Sequence[Sequence[Distance]]]:
        """The distances from changed rows that bound the time by which rows of a relation are found."""
        if changed not in self._distances_of:
            self._distances_of[changed] = {
                name: in_time
                for name, told in self._query.distances_of_changes(changed, self._is_time).items()
                if all(in_time := [self._in_time(name, each) for each in told])
            }
        return self._distances_of[changed]

    def _in_time(self, relation: str, distances: Sequence[Distance]) -> Sequence[Distance]:
        return [each for each in distances if each.column == self._relations[relation].time]

    def _is_time(self, relation: str, column: str) -> bool:
        return isinstance(self._types[relation][column].dataType, TimestampType)

    def _equalities_from(self, changed: frozenset[str]) -> Mapping[str, Sequence[Sequence[Equality]]]:
        """The columns of relations that must equal those of changed ones, where Arrow finds the same equal as Spark."""
        if changed not in self._equalities_of:
            self._equalities_of[changed] = {
                name: in_arrow
                for name, told in self._query.equalities_of_changes(changed).items()
                if all(in_arrow := [[each for each in same if self._is_equal(each)] for same in told])
            }
        return self._equalities_of[changed]

    def _is_equal(self, same: Equality) -> bool:
        places = self._query.places
        one = self._types[places[same.place]][same.column].dataType
        other = self._types[places[same.of_place]][same.of_column].dataType
        return one == other and is_equal_in_arrow(one)


def _moved(values: pa.ChunkedArray, distance: Distance) -> TimeRange:
    """The times that are so far from some instants; from the last to the first one where there are none."""
    micros = np.asarray(values.drop_null().cast(pa.int64()))
    first, last = to_micros(FIRST_INSTANT), to_micros(LAST_MILLISECOND)
    if not len(micros):
        return LAST_MILLISECOND, FIRST_INSTANT
    since = first if distance.least is None else int(micros.min()) + distance.least
    until = last if distance.greatest is None else int(micros.max()) + distance.greatest
    # Readers take the last instant for no bound, so one beyond it leaves out no row.
    return from_micros(min(max(since, first), last)), from_micros(min(max(until, first), last))

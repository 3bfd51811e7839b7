"""The fold of revisions onto the intervals of their keys: what each batch adds and takes back of a history."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key
from itertools import groupby, repeat
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import (
    ADDED,
    BATCH,
    DAY,
    REASON,
    SIGN,
    as_type,
    computes_as_sql,
    days_of,
    from_micros,
    is_less,
    is_same,
    python_values,
)
from streaming.declare import VALID_FROM, VALID_TO
from streaming.keyed import HASH, StoredState
from streaming.revisions.fold import (
    DELETES,
    RETRACTED_TIMES,
    SEQUENCE,
    BucketWriter,
    Counts,
    RevisionReport,
    as_stored,
    written_bucket,
)
from streaming.tables import TaskFiles

SINCE, GONE, TOLD_AT = "_since", "_gone", "_told_at"
"""The time of a revision, whether it says that its key is gone, and the time of the extract that has told it."""
AGES_FROM, STANDS_FOR = "_ages_from", "_stands_for"
"""The instant from which a revision grows old, and what it tells of those before it that are dropped.

The latter is JSON, null of all others: when the interval began that ends with the revision, in microseconds, and which
revision each of its values came with that it had from one before it.
"""
_IN_ORDER, _CLOSED, _LATE = "first", "update", "correction"
FEW_FILES = 8
"""The files that a bucket has at least before some become one: each step in which it has revisions adds one."""


class Known(NamedTuple):
    """A revision of a key, at a `place` among all rows of a bucket, with its time in microseconds since the epoch.

    `retracted` is as `RETRACTED_TIMES`; `unsent` are the columns of which the value did not come, and is that of the
    revision before. `ages_from` is the instant from which it grows old. Where those before it are dropped, `begins` is
    when the interval began that it goes on, and `empty` are the columns of which no revision ever had a value; else
    these are None and nothing.
    """

    place: int
    since: int
    sequence: Any
    is_gone: bool
    retracted: int = 0
    unsent: frozenset[str] = frozenset()
    ages_from: int = 0
    begins: int | None = None
    empty: frozenset[str] = frozenset()

    def precedes(self, other: Known) -> bool:
        """True if it comes before another one, by time and sequence."""
        return self.since < other.since or (self.since == other.since and is_less(self.sequence, other.sequence))


class Interval(NamedTuple):
    """A row as it was from one instant until another, in microseconds since the epoch, or until now.

    Its values are those at a `place`, but for columns in `held`, which have those at places of their own, or null.
    """

    place: int
    held: tuple[tuple[str, int | None], ...]
    begins: int
    ends: int | None

    def place_of(self, column: str) -> int | None:
        """The place that has the value of a column."""
        return dict(self.held).get(column, self.place) if self.held else self.place


@dataclass(frozen=True)
class Horizon:
    """The age from which a history forgets: a revision is old once the clock is more than `after` past `ages_from`.

    `clocks` are those when each batch of a step was read, and after it, None where there was none; all times are in
    microseconds since the epoch.
    """

    after: int
    clocks: Mapping[int, tuple[int | None, int | None]]

    def oldest(self, batch: int) -> int | None:
        """The instant before which a revision was old when a batch was read; None where none was."""
        clock, _ = self.clocks[batch]
        return None if clock is None else clock - self.after

    @property
    def oldest_now(self) -> int | None:
        """The instant before which one is old after all batches; None where none is."""
        _, clock = self.clocks[max(self.clocks)]
        return None if clock is None else clock - self.after

    def ages_from(self, since: pa.Array, batches: Sequence[int]) -> pa.Array:
        """The instants from which revisions with these times grow old: from when they came on, if that is later."""
        came = pa.array([self.clocks[batch][1] for batch in batches], pa.int64())
        return pc.max_element_wise(since, came)


def base_of(known: Sequence[Known], oldest: int | None) -> int | None:
    """The place of the last of a key's oldest revisions which are all old: before it nothing is remembered.

    None where the first one is not.
    """
    place = 0
    while oldest is not None and place < len(known) and known[place].ages_from < oldest:
        place += 1
    return place - 1 if place else None


def insert(known: list[Known], new: Known) -> int | None:
    """Insert a revision among those of its key, which are in order; returns its place there.

    None where one of the same time and sequence is there, which came before it and counts, unless somebody takes that
    back, or puts it back: the newest of these takes its place, and is as old.
    """
    place = len(known)
    while place and new.precedes(known[place - 1]):
        place -= 1
    is_there = bool(place) and not known[place - 1].precedes(new)
    if is_there and new.retracted > known[place - 1].retracted:
        known[place - 1] = new._replace(ages_from=known[place - 1].ages_from)
        return place - 1
    if is_there or new.retracted:
        return None
    known.insert(place, new)
    return place


def _once_gone(known: Sequence[Known], new: Known, told_at: int) -> Known:
    """A revision of an extract that was told at a time: by that, where its key was gone since its own time."""
    last = max(known, key=lambda each: each.sequence, default=None)
    if last is None or not last.is_gone or new.since >= last.since:
        return new
    return new._replace(since=max(told_at, last.since))


def in_order(known: Iterable[Known]) -> list[Known]:
    """The revisions of a key in the order of their times and sequences; of one that was taken back the newest."""
    ordered = list[Known]()
    for each in sorted(known, key=cmp_to_key(_compared)):
        if ordered and not ordered[-1].precedes(each):
            ordered.pop()
        ordered.append(each)
    return ordered


def _compared(one: Known, other: Known) -> int:
    if one.precedes(other):
        return -1
    return 1 if other.precedes(one) else one.retracted - other.retracted


def intervals(known: Sequence[Known], is_same_row: Callable[[Interval, Interval], bool]) -> list[Interval]:
    """The intervals of a key by its revisions, which are in order; `is_same_row` says which two are one interval."""
    found: list[Interval] = []
    has_own_values = not any(each.unsent for each in known)
    all_held: Iterable[Mapping[str, int | None]] = repeat({}, len(known)) if has_own_values else _held(known)
    for place, (revision, held) in enumerate(zip(known, all_held, strict=True)):
        ends = known[place + 1].since if place + 1 < len(known) else None
        if ends == revision.since or revision.is_gone:
            continue
        begins = revision.since if revision.begins is None else revision.begins
        one = Interval(revision.place, tuple(held.items()), begins, ends)
        if found and found[-1].ends == one.begins and is_same_row(found[-1], one):
            one = one._replace(begins=found.pop().begins)
        found.append(one)
    return found


def _held(known: Sequence[Known]) -> Iterator[dict[str, int | None]]:
    """For each revision of a key, which are in order, the places of the values that it has from one before it."""
    held: dict[str, int | None] = {}
    before: Known | None = None
    for revision in known:
        if before is None or before.is_gone:
            held = dict.fromkeys(sorted(revision.unsent))
        else:
            own = {name: None if name in before.empty else before.place for name in sorted(revision.unsent)}
            held = {name: held.get(name, place) for name, place in own.items()}
        before = revision
        yield held


@dataclass(frozen=True)
class Remembered:
    """A revision that is stored still: as it is, or completed, so that those before it can be dropped.

    `begins` is when its interval began; `held` are the places of the values that it has from revisions before it.
    """

    revision: Known
    is_complete: bool = False
    begins: int | None = None
    held: Mapping[str, int | None] = field(default_factory=dict)


def remembered(
    known: Sequence[Known],
    oldest: int | None,
    is_same_row: Callable[[Interval, Interval], bool],
    *,
    merges: bool = True,
) -> list[Remembered]:
    """The revisions of a key, which are in order, that are remembered.

    Of those up to the base these are itself, the one with the interval that ends there, which a revision of the same
    time may go on where intervals are ever one (`merges`), and the one before it where it has values of that, or will
    if somebody puts it back. A delete before it has none, and is what keeps those of the interval from it.
    """
    place = base_of(known, oldest)
    if place is None:
        return [Remembered(each) for each in known]
    base = known[place]
    ended = intervals([*known[:place], base._replace(is_gone=True)], is_same_row)[-1:]
    begins = {each.place: each.begins for each in ended if each.ends == base.since}
    has_values_of_before = bool(base.unsent) or (base.is_gone and base.retracted > 0)
    earlier = [
        Remembered(one, True, begins.get(one.place), held)
        for number, (one, held) in enumerate(zip(known[:place], _held(known[:place]), strict=True))
        if (merges and one.place in begins) or (has_values_of_before and number == place - 1)
    ]
    return earlier + [Remembered(each) for each in known[place:]]


@dataclass
class Signed:
    """Intervals that are added (1) and taken back (-1), each with a reason and the batch that has brought it."""

    rows: list[tuple[Interval, int, str, int]] = field(default_factory=list)

    def tell(self, before: Sequence[Interval], after: Sequence[Interval], batch: int, *, is_late: bool) -> None:
        """Add what differs between the intervals of a key before and after a batch."""
        if before == after:
            return
        there, now = set(before), set(after)
        began = {each.begins for each in before}
        for each in before:
            if each not in now:
                self.rows.append((each, -1, _LATE if is_late else _CLOSED, batch))
        for each in after:
            if each not in there:
                in_order = _CLOSED if each.begins in began else _IN_ORDER
                self.rows.append((each, 1, _LATE if is_late else in_order, batch))


def files_to_join(rows: Sequence[int], new: int) -> list[int]:
    """The places of files with so many `rows` each that become one with so many `new` ones.

    These are the smaller half, and in the order of their size those with fewer rows than two times what is smaller. So
    a row is written anew a few times in all, and not each time when there are too many files.
    """
    in_order = sorted(range(len(rows)), key=rows.__getitem__)
    joined, total = list[int](), new
    for place in in_order:
        if len(joined) >= len(rows) / 2 and rows[place] >= 2 * total:
            break
        joined.append(place)
        total += rows[place]
    return sorted(joined)


@dataclass(frozen=True)
class WriteHistory:
    """Fold the revisions of a partition; write intervals to the table at `uri`, and the revisions of their keys.

    The rows of a partition are as those of `WriteRevisions`, and have `_since`. `track`: the columns of which another
    value begins an interval, None for each revision. `is_newest_only`: of each key nothing but the interval without an
    end. `of_extracts`: a row has `_told_at`, the time of its extract, and is there again by that. `as_before` and
    `made_of` as there. A bucket has at least `few_files` before some become one. `horizon`: the age from which
    revisions are forgotten, None where none is.
    """

    key: tuple[str, ...]
    values: tuple[str, ...]
    track: tuple[str, ...] | None
    is_newest_only: bool
    of_extracts: bool
    as_before: str
    made_of: Mapping[str, frozenset[str]]
    uri: str
    intervals: pa.Schema
    stored: StoredState
    few_files: int
    horizon: Horizon | None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _Writing(self).reported(batches)


class _Writing(BucketWriter):
    def __init__(self, of: WriteHistory) -> None:
        super().__init__(of.stored, TaskFiles(of.uri, of.intervals, (BATCH,), diverse_numbers="zstd"))
        self._of = of

    def fold_bucket(self, number: int, came: pa.Table) -> None:
        stored = self.stored
        bucket = stored.opened(number)
        found = bucket.rows.take(pa.array(bucket.places(came[HASH].to_numpy())))
        came = came.append_column(GONE, pc.fill_null(came[DELETES], False))
        if self._of.horizon is not None:
            ages_from = self._of.horizon.ages_from(came[SINCE].cast(pa.int64()), came[BATCH].to_pylist())
            came = came.append_column(AGES_FROM, ages_from)
            came = came.append_column(STANDS_FOR, pa.nulls(len(came), pa.string()))
        told_of_all = (HASH, GONE, SEQUENCE, SINCE, RETRACTED_TIMES, ADDED, AGES_FROM, *self._of.key)
        rows = pa.concat_tables([found, as_stored(came, stored.schema, told_of_all)]).combine_chunks()
        known = self._known(rows)
        told_at = came[TOLD_AT].cast(pa.int64()).to_pylist() if self._of.of_extracts else []
        accepted, signed, forgotten = self._folded(rows, known, len(found), came[BATCH].to_pylist(), told_at)
        if forgotten:
            as_they_came = as_stored(came, stored.schema, stored.schema.names)
            self._put_forgotten(as_they_came, [(place - len(found), batch) for place, batch in forgotten])
        if not accepted and number not in stored.visited:
            return
        self._put(rows, signed)
        if self._of.of_extracts:
            rows = _with_times(rows, SINCE, [each.since for each in known])
        if self._of.horizon is not None:
            rows = _with_times(rows, AGES_FROM, [each.ages_from for each in known])
        new = rows.take(pa.array(accepted, pa.int64()))
        # Revisions stay as they are, so those that came are a file of their own.
        joined = self._joined(number, bucket.of_files, len(new))
        if joined:
            new = self._remembered(pa.concat_tables([bucket.rows_of(joined), new]))
        paths = stored.files.get(number, ())
        replaced = tuple(paths[place] for place in joined)
        self.report += RevisionReport(standing=written_bucket(stored, number, None, new), replaced=replaced)

    def _joined(self, number: int, of_files: Sequence[int], new: int) -> Sequence[int]:
        """The places of the files of a bucket, with so many rows each, that become one with so many `new` rows."""
        # Not those of all buckets are put together in one step, which would take as long as many others.
        most = self._of.few_files + number % self._of.few_files
        if number in self.stored.visited:
            return range(len(of_files))
        if len(of_files) < most:
            return ()
        # What is to be forgotten is seen by all rows of a key.
        return range(len(of_files)) if self._of.horizon is not None else files_to_join(of_files, new)

    def _folded(
        self, rows: pa.Table, known: list[Known], stored: int, batches: Sequence[int], told_at: Sequence[int]
    ) -> tuple[list[int], Signed, list[tuple[int, int]]]:
        """The places of revisions that are new, and what they change; the first `stored` of the rows were there.

        The last are the places of those that are forgotten, each with its batch. `known` are the revisions in the rows,
        of which some get another time by `told_at`, that of their extracts, or are as old as those that they replace.
        """
        keys = list(zip(*(python_values(rows[name]) for name in self._of.key), strict=True))
        is_same_row = self._is_same_row(rows)
        before: dict[tuple[Any, ...], list[Known]] = {}
        for place in range(stored):
            before.setdefault(keys[place], []).append(known[place])
        before = {key: in_order(of_key) for key, of_key in before.items()}
        accepted, signed, forgotten = list[int](), Signed(), list[tuple[int, int]]()
        for key, of_key_places in groupby(range(stored, len(keys)), keys.__getitem__):
            of_key = before.setdefault(key, [])
            told = self._told(of_key, is_same_row)
            for batch, places in groupby(of_key_places, lambda place: batches[place - stored]):
                is_late = False
                base = self._base(of_key, batch)
                for place in places:
                    if self._of.of_extracts:
                        known[place] = _once_gone(of_key, known[place], told_at[place - stored])
                    if base is not None and known[place].precedes(base):
                        forgotten.append((place, batch))
                        continue
                    at = insert(of_key, known[place])
                    if at is not None:
                        known[place] = of_key[at]
                        accepted.append(place)
                        is_late |= at < len(of_key) - 1 or known[place].retracted > 0
                now = self._told(of_key, is_same_row)
                signed.tell(told, now, batch, is_late=is_late)
                told = now
        return accepted, signed, forgotten

    def _base(self, known: Sequence[Known], batch: int) -> Known | None:
        """The revision of a key before which nothing is remembered when a batch is read; None where all is."""
        place = None if self._of.horizon is None else base_of(known, self._of.horizon.oldest(batch))
        return None if place is None else known[place]

    def _remembered(self, rows: pa.Table) -> pa.Table:
        """The rows of a bucket without those that are dropped, as they are stored."""
        oldest = None if self._of.horizon is None else self._of.horizon.oldest_now
        if oldest is None:
            return rows
        # A key of which but one row is old, and those that are completed for it, has nothing to drop.
        is_old = pc.and_(pc.less(rows[AGES_FROM].cast(pa.int64()), oldest), pc.is_null(rows[STANDS_FOR]))
        of_old, counts = np.unique(rows[HASH].filter(is_old).to_numpy(), return_counts=True)
        is_touched = pc.is_in(rows[HASH], pa.array(of_old[counts > 1], pa.int64()))
        touched = rows.filter(is_touched).combine_chunks()
        if not len(touched):
            return rows
        by_key: dict[tuple[Any, ...], list[Known]] = {}
        keys = zip(*(python_values(touched[name]) for name in self._of.key), strict=True)
        for key, each in zip(keys, self._known(touched), strict=True):
            by_key.setdefault(key, []).append(each)
        is_same_row = self._is_same_row(touched)
        merges = self._of.track is not None
        left = [
            each
            for of_key in by_key.values()
            for each in remembered(in_order(of_key), oldest, is_same_row, merges=merges)
        ]
        return pa.concat_tables([rows.filter(pc.invert(is_touched)), self._completed(touched, left)])

    def _completed(self, rows: pa.Table, left: Sequence[Remembered]) -> pa.Table:
        """The rows of revisions that are left, those of completed ones with all values."""
        added, values_of = rows[ADDED].to_pylist(), _values_of(rows)

        def place_of(each: Remembered, name: str) -> int | None:
            return each.held.get(name, each.revision.place)

        columns = []
        for name in rows.column_names:
            if name == STANDS_FOR:
                told = [
                    _told_instead(each, added, values_of)
                    if each.is_complete
                    else rows[STANDS_FOR][each.revision.place].as_py()
                    for each in left
                ]
                columns.append(pa.array(told, pa.string()))
                continue
            places = [
                None if name == self._of.as_before and each.is_complete else place_of(each, name) for each in left
            ]
            columns.append(rows[name].take(pa.array(places, pa.int64())))
        return pa.table(columns, schema=rows.schema)

    def _told(self, known: Sequence[Known], is_same_row: Callable[[Interval, Interval], bool]) -> list[Interval]:
        if not self._of.is_newest_only:
            return intervals(known, is_same_row)
        # Where each revision begins an interval, those before the newest one tell nothing of it but values.
        newest = known[-1:] if self._of.track is None and not (known and known[-1].unsent) else known
        return [each for each in intervals(newest, is_same_row) if each.ends is None]

    def _known(self, rows: pa.Table) -> list[Known]:
        since = rows[SINCE].cast(pa.int64()).to_pylist()
        told = zip(
            range(len(rows)),
            since,
            python_values(rows[SEQUENCE]),
            rows[GONE].to_pylist(),
            rows[RETRACTED_TIMES].to_pylist(),
            strict=True,
        )
        known = [Known(*each) for each in told]
        if self._of.as_before:
            known = [
                each._replace(unsent=self._unsent(frozenset(names))) if names else each
                for each, names in zip(known, rows[self._of.as_before].to_pylist(), strict=True)
            ]
        if self._of.horizon is None:
            return known
        ages_from = rows[AGES_FROM].cast(pa.int64()).to_pylist()
        aged = [each._replace(ages_from=from_) for each, from_ in zip(known, ages_from, strict=True)]
        for place, text in enumerate(rows[STANDS_FOR].to_pylist()):
            if text is not None:
                told = json.loads(text)
                empty = frozenset(name for name, revision in told["values"].items() if revision is None)
                aged[place] = aged[place]._replace(begins=told["begins"], empty=empty)
        return aged

    def _unsent(self, names: frozenset[str]) -> frozenset[str]:
        """The columns of which no value came, where that of columns with these `names` did not."""
        return frozenset(each for each in self._of.values if self._of.made_of[each] & names)

    def _is_same_row(self, rows: pa.Table) -> Callable[[Interval, Interval], bool]:
        """Tells whether two intervals have the same values in the columns that are tracked."""
        if self._of.track is None:
            return lambda one, other: False
        tracked = [(name, [*python_values(rows[name])]) for name in self._of.track]

        def value(values: list[Any], place: int | None) -> Any:
            return None if place is None else values[place]

        return lambda one, other: all(
            is_same(value(values, one.place_of(name)), value(values, other.place_of(name))) for name, values in tracked
        )

    def _put(self, rows: pa.Table, signed: Signed) -> None:
        if not signed.rows:
            return
        every, signs, reasons, batches = zip(*signed.rows, strict=True)
        added, values_of = rows[ADDED].to_pylist(), _values_of(rows)
        told = {
            VALID_FROM: pa.array([each.begins for each in every], pa.int64()),
            VALID_TO: pa.array([each.ends for each in every], pa.int64()),
            ADDED: pa.array([_identity(each, added, values_of) for each in every], pa.string()),
            SIGN: pa.array(signs, pa.int32()),
            REASON: pa.array(reasons, pa.string()),
            BATCH: pa.array(batches, pa.int64()),
        }
        own = pa.array([each.place for each in every], pa.int64())
        held = {name for each in every for name, _ in each.held}

        def places_of(name: str) -> pa.Array:
            return pa.array([each.place_of(name) for each in every], pa.int64()) if name in held else own

        self._write_rows(rows, told, places_of)

    def _put_forgotten(self, rows: pa.Table, forgotten: Sequence[tuple[int, int]]) -> None:
        """Tell of revisions that are forgotten, as rows that neither add an interval nor take one back.

        They are told as they came, of a delete also what it says besides its key.
        """
        horizon = self._of.horizon
        assert horizon is not None
        numbers, batches = zip(*forgotten, strict=True)
        places = pa.array(numbers, pa.int64())
        told = {
            VALID_FROM: rows[SINCE].take(places).cast(pa.int64()).combine_chunks(),
            VALID_TO: pa.nulls(len(places), pa.int64()),
            ADDED: rows[ADDED].take(places),
            SIGN: pa.repeat(pa.scalar(0, pa.int32()), len(places)),
            REASON: pa.array([_why_forgotten(horizon.oldest(batch)) for batch in batches], pa.string()),
            BATCH: pa.array(batches, pa.int64()),
        }
        self._write_rows(rows, told, lambda name: places)
        self.report += RevisionReport(counts=Counts(forgotten=len(places)))

    def _write_rows(self, rows: pa.Table, told: dict[str, Any], places_of: Callable[[str], pa.Array]) -> None:
        """Write rows of the history with what is `told` of them, and the other values at places in the `rows`."""
        told[DAY] = days_of(told[VALID_FROM].to_numpy())
        columns = [
            as_type(told[each.name], each.type)
            if each.name in told
            else as_type(rows[each.name].take(places_of(each.name)), each.type)
            for each in self._of.intervals
        ]
        for batch in pa.table(columns, schema=self._of.intervals).combine_chunks().to_batches():
            self.files.write(batch)


_ValuesOf = Mapping[int, Mapping[str, str | None]]
"""For the places of completed revisions, the identity of the one with which each value came that is of one before."""


def _with_times(rows: pa.Table, name: str, times: Sequence[int]) -> pa.Table:
    """The rows with other instants, in microseconds since the epoch, in one of their columns."""
    return rows.set_column(
        rows.schema.get_field_index(name), name, pa.array(times, pa.int64()).cast(rows.schema.field(name).type)
    )


def _values_of(rows: pa.Table) -> _ValuesOf:
    if STANDS_FOR not in rows.column_names:
        return {}
    told = enumerate(rows[STANDS_FOR].to_pylist())
    return {place: json.loads(text)["values"] for place, text in told if text is not None}


def _told_instead(completed: Remembered, added: Sequence[str], values_of: _ValuesOf) -> str:
    """JSON of what a completed revision stands for."""
    own = values_of.get(completed.revision.place, {})
    values = {name: _came_with(name, place, added, values_of) for name, place in completed.held.items()} or own
    return json.dumps({"begins": completed.begins, "values": values})


def _came_with(name: str, place: int | None, added: Sequence[str], values_of: _ValuesOf) -> str | None:
    """The identity of the revision with which the value of a column at a place came; None where none ever did."""
    return None if place is None else values_of.get(place, {}).get(name, added[place])


def _why_forgotten(oldest: int | None) -> str:
    assert oldest is not None
    until = from_micros(oldest).isoformat()
    return f"forgotten: of its key a newer revision was known before {until}, and none before that one is remembered"


def _identity(interval: Interval, added: Sequence[str], values_of: _ValuesOf) -> str:
    """A text that is the same for intervals of the same values and bounds, made of the identities of revisions."""
    own = values_of.get(interval.place, {})
    held = {name: _came_with(name, place, added, values_of) for name, place in interval.held} or own
    text = repr((added[interval.place], interval.begins, interval.ends, *held.items()))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

"""The fold of revisions onto the intervals of their keys: what each batch adds and takes back of a history."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cmp_to_key
from itertools import groupby
from typing import Any

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
    RevisionReport,
    as_stored,
    written_bucket,
)
from streaming.tables import TaskFiles

SINCE, GONE, TOLD_AT = "_since", "_gone", "_told_at"
"""The time of a revision, whether it says that its key is gone, and the time of the extract that has told it."""
_IN_ORDER, _CLOSED, _LATE = "first", "update", "correction"
_FEW_FILES = 8
"""The files that a bucket has at least before they become one: each step in which it has revisions adds one."""


@dataclass(frozen=True, slots=True)
class Known:
    """A revision of a key, at a `place` among all rows of a bucket, with its time in microseconds since the epoch.

    `retracted` is as `RETRACTED_TIMES`; `unsent` are the columns of which the value did not come, and is that of the
    revision before.
    """

    place: int
    since: int
    sequence: Any
    is_gone: bool
    retracted: int = 0
    unsent: frozenset[str] = frozenset()

    def precedes(self, other: Known) -> bool:
        """True if it comes before another one, by time and sequence."""
        return self.since < other.since or (self.since == other.since and is_less(self.sequence, other.sequence))


@dataclass(frozen=True, slots=True)
class Interval:
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


def insert(known: list[Known], new: Known) -> int | None:
    """Insert a revision among those of its key, which are in order; returns its place there.

    None where one of the same time and sequence is there, which came before it and counts, unless somebody takes that
    back, or puts it back: the newest of these takes its place.
    """
    place = len(known)
    while place and new.precedes(known[place - 1]):
        place -= 1
    is_there = bool(place) and not known[place - 1].precedes(new)
    if is_there and new.retracted > known[place - 1].retracted:
        known[place - 1] = new
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
    return replace(new, since=max(told_at, last.since))


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
    held: dict[str, int | None] = {}
    before: Known | None = None
    for place, revision in enumerate(known):
        if before is None or before.is_gone:
            held = dict.fromkeys(sorted(revision.unsent))
        else:
            held = {name: held.get(name, before.place) for name in sorted(revision.unsent)}
        before = revision
        ends = known[place + 1].since if place + 1 < len(known) else None
        if ends == revision.since or revision.is_gone:
            continue
        one = Interval(revision.place, tuple(held.items()), revision.since, ends)
        if found and found[-1].ends == one.begins and is_same_row(found[-1], one):
            one = Interval(one.place, one.held, found.pop().begins, ends)
        found.append(one)
    return found


@dataclass
class Signed:
    """Intervals that are added (1) and taken back (-1), each with a reason and the batch that has brought it."""

    rows: list[tuple[Interval, int, str, int]] = field(default_factory=list)

    def tell(self, before: Sequence[Interval], after: Sequence[Interval], batch: int, *, is_late: bool) -> None:
        """Add what differs between the intervals of a key before and after a batch."""
        there, now = set(before), set(after)
        began = {each.begins for each in before}
        for each in before:
            if each not in now:
                self.rows.append((each, -1, _LATE if is_late else _CLOSED, batch))
        for each in after:
            if each not in there:
                in_order = _CLOSED if each.begins in began else _IN_ORDER
                self.rows.append((each, 1, _LATE if is_late else in_order, batch))


@dataclass(frozen=True)
class WriteHistory:
    """Fold the revisions of a partition; write intervals to the table at `uri`, and the revisions of their keys.

    The rows of a partition are as those of `WriteRevisions`, and have `_since`. `track`: the columns of which another
    value begins an interval, None for each revision. `is_newest_only`: of each key nothing but the interval without an
    end. `of_extracts`: a row has `_told_at`, the time of its extract, and is there again by that. `as_before` and
    `made_of` as there.
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

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _Writing(self).reported(batches)


class _Writing(BucketWriter):
    def __init__(self, of: WriteHistory) -> None:
        super().__init__(of.stored, TaskFiles(of.uri, of.intervals, (BATCH,)))
        self._of = of

    def fold_bucket(self, number: int, came: pa.Table) -> None:
        stored = self.stored
        bucket = stored.opened(number)
        found = bucket.rows.take(pa.array(bucket.places(came[HASH].to_numpy())))
        came = came.append_column(GONE, pc.fill_null(came[DELETES], False))
        told_of_all = (HASH, GONE, SEQUENCE, SINCE, RETRACTED_TIMES, ADDED, *self._of.key)
        rows = pa.concat_tables([found, as_stored(came, stored.schema, told_of_all)]).combine_chunks()
        known = self._known(rows)
        told_at = came[TOLD_AT].cast(pa.int64()).to_pylist() if self._of.of_extracts else []
        accepted, signed = self._folded(rows, known, len(found), came[BATCH].to_pylist(), told_at)
        if not accepted and number not in stored.visited:
            return
        self._put(rows, signed)
        times = pa.array([each.since for each in known], pa.int64()).cast(rows.schema.field(SINCE).type)
        rows = rows.set_column(rows.schema.get_field_index(SINCE), SINCE, times)
        new = rows.take(pa.array(accepted, pa.int64()))
        # Revisions stay as they are, so those that came are a file of their own. Not all buckets are put together in
        # one step, which would take as long as many others.
        most = _FEW_FILES + number % _FEW_FILES
        if number in stored.visited or len(stored.files.get(number, ())) >= most:
            file = written_bucket(stored, number, bucket.untouched(), new)
            self.report += RevisionReport(standing=file, buckets=(number,))
        else:
            self.report += RevisionReport(standing=written_bucket(stored, number, None, new))

    def _folded(
        self, rows: pa.Table, known: list[Known], stored: int, batches: Sequence[int], told_at: Sequence[int]
    ) -> tuple[list[int], Signed]:
        """The places of revisions that are new, and what they change; the first `stored` of the rows were there.

        `known` are the revisions in the rows, of which some get another time by `told_at`, that of their extracts.
        """
        keys = list(zip(*(python_values(rows[name]) for name in self._of.key), strict=True))
        is_same_row = self._is_same_row(rows)
        before: dict[tuple[Any, ...], list[Known]] = {}
        for place in range(stored):
            before.setdefault(keys[place], []).append(known[place])
        before = {key: in_order(of_key) for key, of_key in before.items()}
        accepted, signed = list[int](), Signed()
        for key, of_key_places in groupby(range(stored, len(keys)), keys.__getitem__):
            of_key = before.setdefault(key, [])
            told = self._told(of_key, is_same_row)
            for batch, places in groupby(of_key_places, lambda place: batches[place - stored]):
                is_late = False
                for place in places:
                    if self._of.of_extracts:
                        known[place] = _once_gone(of_key, known[place], told_at[place - stored])
                    at = insert(of_key, known[place])
                    if at is not None:
                        accepted.append(place)
                        is_late |= at < len(of_key) - 1 or known[place].retracted > 0
                now = self._told(of_key, is_same_row)
                signed.tell(told, now, batch, is_late=is_late)
                told = now
        return accepted, signed

    def _told(self, known: Sequence[Known], is_same_row: Callable[[Interval, Interval], bool]) -> list[Interval]:
        found = intervals(known, is_same_row)
        return [each for each in found if each.ends is None] if self._of.is_newest_only else found

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
        if not self._of.as_before:
            return [Known(*each) for each in told]
        return [
            Known(*each, self._unsent(frozenset(names or ())))
            for each, names in zip(told, rows[self._of.as_before].to_pylist(), strict=True)
        ]

    def _unsent(self, names: frozenset[str]) -> frozenset[str]:
        """The columns of which no value came, where that of columns with these `names` did not."""
        return frozenset(each for each in self._of.values if self._of.made_of[each] & names) if names else names

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
        added = rows[ADDED].to_pylist()
        told = {
            VALID_FROM: pa.array([each.begins for each in every], pa.int64()),
            VALID_TO: pa.array([each.ends for each in every], pa.int64()),
            ADDED: pa.array([_identity(each, added) for each in every], pa.string()),
            SIGN: pa.array(signs, pa.int32()),
            REASON: pa.array(reasons, pa.string()),
            BATCH: pa.array(batches, pa.int64()),
        }
        told[DAY] = days_of(told[VALID_FROM].to_numpy())
        columns = [
            as_type(told[each.name], each.type)
            if each.name in told
            else as_type(rows[each.name].take(_places(every, each.name)), each.type)
            for each in self._of.intervals
        ]
        for batch in pa.table(columns, schema=self._of.intervals).combine_chunks().to_batches():
            self.files.write(batch)


def _places(every: Sequence[Interval], column: str) -> pa.Array:
    return pa.array([each.place_of(column) for each in every], pa.int64())


def _identity(interval: Interval, added: Sequence[str]) -> str:
    """A text that is the same for intervals of the same values and bounds, made of the identities of revisions."""
    held = ((name, None if place is None else added[place]) for name, place in interval.held)
    text = repr((added[interval.place], interval.begins, interval.ends, *held))
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()

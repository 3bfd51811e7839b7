"""The fold of revisions onto the rows that stand: what each batch adds and takes back, and what stands after it."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import (
    ADDED,
    BATCH,
    DAY,
    INGESTED_AT,
    ORIGIN,
    STAMP,
    as_type,
    computes_as_sql,
    days_of,
    from_micros,
    is_less,
    is_same,
    python_values,
)
from streaming.keyed import DUE, HASH, BucketFile, OpenBucket, StoredState
from streaming.tables import TaskFile, TaskFiles

SEQUENCE, DELETES, CONCERNS, RETRACTED_TIMES = "_sequence", "_deletes", "_concerns", "_retracted_times"
"""The place of a revision among those of its key, whether it says that the key is gone, and whether it is of a row.

The last is the number of a row by which somebody takes a revision back (odd) or puts it back (even), 0 for others.
"""
REPORT = "report"
_REJECTED = "_rejected"
_INSTANT = pa.timestamp("us", "UTC")


@dataclass(frozen=True)
class Counts:
    """The revisions of a batch by what became of them, and the rows that were taken back.

    Each revision has `added` a row, has `deleted` its key, was `superseded` by one that came before it and is newer,
    was `passed` over, as another of the same batch is newer, was `ignored`, as it concerns no row, or `refused` with
    its whole extract, or is `forgotten`, as a delete of its key may be. `missing`: keys that are gone because an
    extract does not have them.
    """

    ignored: int = 0
    added: int = 0
    deleted: int = 0
    superseded: int = 0
    passed: int = 0
    taken_back: int = 0
    missing: int = 0
    refused: int = 0
    forgotten: int = 0

    def __add__(self, other: Counts) -> Counts:
        one, more = asdict(self), asdict(other)
        return Counts(**{name: one[name] + more[name] for name in one})

    def to_json(self) -> dict[str, int]:
        """The counts by their names."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, int]) -> Counts:
        """The inverse of `to_json`."""
        return cls(**value)

    @property
    def revisions(self) -> int:
        """All of them."""
        counted = (self.refused, self.ignored, self.added, self.deleted, self.superseded, self.passed, self.forgotten)
        return sum(counted)

    @property
    def rows(self) -> int:
        """The rows of the changes, those that tell of a forgotten revision among them."""
        return self.added + self.taken_back + self.forgotten


@dataclass(frozen=True)
class StoredRevision:
    """The newest revision of a key: its `sequence`, its `place` in what is stored, and whether its key is gone."""

    sequence: Any
    place: int
    is_gone: bool


@dataclass(frozen=True)
class Revised:
    """The outcome for some keys, by the places of revisions and of what is stored.

    `accepted`: of each key that changes the revisions that were newer when they came, in order, the newest the last.
    `replaced`: of each of these the place of what is stored of the key, None for nothing. `taken_back`: the places of
    rows that stand no more, each with that of the revision which takes it back. `forgotten`: the places of revisions of
    which nobody knows whether their key was gone.
    """

    accepted: list[list[int]] = field(default_factory=list)
    replaced: list[int | None] = field(default_factory=list)
    taken_back: list[tuple[int, int]] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)

    @property
    def newest(self) -> list[int]:
        """The newest revision of each key that changes."""
        return [places[-1] for places in self.accepted]


def revise(
    keys: Sequence[tuple[Any, ...]],
    sequences: Sequence[Any],
    deletes: Sequence[bool],
    standing: Mapping[tuple[Any, ...], StoredRevision],
    is_equal: Callable[[int, int], bool] = lambda place, stored: False,
    retracted: Sequence[int] = (),
    is_forgotten: Callable[[int], bool] = lambda place: False,
) -> tuple[Revised, Counts]:
    """Fold the revisions of one batch, those of each key together and in the order in which they came.

    The greatest sequence wins, of equal ones the first; only what is new after the whole batch is told. A revision that
    `is_equal` to what stands, by the places of both, changes nothing. `retracted` is as `RETRACTED_TIMES`, empty for
    none: what takes the row that stands back comes after it at the same sequence, and what puts it back after that.
    `is_forgotten` says of a revision whose key nobody knows, by its place, that a delete of it may be forgotten.
    """
    revised, superseded, passed, added, deleted = Revised(), 0, 0, 0, 0
    for key, places in groupby(range(len(keys)), keys.__getitem__):
        before = standing.get(key)
        accepted: list[int] = []
        sequence = None if before is None else before.sequence
        is_gone = before is None or before.is_gone
        for place in places:
            again = retracted[place] if retracted else 0
            if before is None and not accepted and is_forgotten(place):
                revised.forgotten.append(place)
                continue
            if again:
                takes = (before is not None or accepted) and not is_less(sequences[place], sequence)
                takes = takes and (again % 2 == 0) == is_gone
            else:
                takes = (before is None and not accepted) or is_less(sequence, sequences[place])
            if takes:
                is_gone = deletes[place]
                accepted.append(place)
                sequence = sequences[place]
            else:
                superseded += 1
        stood = before is not None and not before.is_gone and not deletes[accepted[-1]] if accepted else False
        if stood and before is not None and is_equal(accepted[-1], before.place):
            superseded += len(accepted)
            continue
        if not accepted:
            continue
        newest = accepted[-1]
        passed += len(accepted) - 1
        revised.accepted.append(accepted)
        revised.replaced.append(None if before is None else before.place)
        if deletes[newest]:
            deleted += 1
        else:
            added += 1
        if before is not None and not before.is_gone:
            revised.taken_back.append((before.place, newest))
    counts = Counts(
        added=added,
        deleted=deleted,
        superseded=superseded,
        passed=passed,
        taken_back=len(revised.taken_back),
        forgotten=len(revised.forgotten),
    )
    return revised, counts


@dataclass(frozen=True)
class Extract:
    """A batch that is a whole extract: what it is told by in the changes of keys that it does not have.

    `ingested_at` and `stamp` are in microseconds since the epoch. `is_whole`: a key that is not in it is gone.
    """

    number: int
    ingested_at: int
    stamp: int | None
    is_whole: bool


@dataclass(frozen=True)
class Forgetting:
    """The deletes that a batch forgets, all times in microseconds since the epoch.

    A delete is forgotten once its time is more than `after` before the `clock` after the batch. `until` is the latest
    time of those that were forgotten before the batch, None for none.
    """

    after: int
    clock: int
    until: int | None


@dataclass(frozen=True)
class RevisionReport:
    """The report of a task, or of several: the files of the changes and of what stands.

    `replaced`: the paths of the files of what stood for which new ones stand. `stood`: the rows that stood before, of
    all keys if each bucket was visited. `forgotten_until`: the latest time of a delete that is forgotten from now on,
    in microseconds since the epoch, None for none.
    """

    changes: tuple[TaskFile, ...] = ()
    standing: tuple[TaskFile, ...] = ()
    replaced: tuple[str, ...] = ()
    counts: Counts = Counts()
    stood: int = 0
    forgotten_until: int | None = None

    def __add__(self, other: RevisionReport) -> RevisionReport:
        return RevisionReport(
            self.changes + other.changes,
            self.standing + other.standing,
            self.replaced + other.replaced,
            self.counts + other.counts,
            self.stood + other.stood,
            latest_of(self.forgotten_until, other.forgotten_until),
        )

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RevisionReport:
        """The inverse of `to_json`."""
        told = json.loads(text)
        changes, standing = (tuple(TaskFile(**file) for file in told[name]) for name in ("changes", "standing"))
        counts, until = Counts(**told["counts"]), told["forgotten_until"]
        return cls(changes, standing, tuple(told["replaced"]), counts, told["stood"], until)


def latest_of(*times: int | None) -> int | None:
    """The latest of some times; None for none."""
    return max((time for time in times if time is not None), default=None)


@dataclass(frozen=True)
class WriteRevisions:
    """Fold the revisions of a partition; write what follows to the log of changes at `uri`, and what stands after it.

    The rows of a partition have `_hash`, `_batch`, `_sequence`, `_deletes`, `_retracted_times`, `_added`, `_concerns`,
    the columns of the log of revisions, and are in the order of their hashes, keys and places. One without `_batch`
    stands for its bucket.

    `as_before` is as that of the stream; `made_of` has the columns that each column is made of, itself among them: one
    that is made of a column whose value was not sent has the value that stands. `compared` as that of the stream.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    compared: tuple[str, ...]
    event_time: str
    as_before: str
    made_of: Mapping[str, frozenset[str]]
    uri: str
    changes: pa.Schema
    standing: StoredState
    extract: Extract | None = None
    forgetting: Forgetting | None = None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _Writing(self).reported(batches)


class BucketWriter(ABC):
    """The files of one task, which folds revisions bucket by bucket onto what is `stored` of their keys."""

    def __init__(self, stored: StoredState, files: TaskFiles) -> None:
        self.stored = stored
        self.files = files
        self.report = RevisionReport()

    def reported(self, batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
        """The report on the rows of a partition, once all files are written."""
        rows = [batch for batch in batches if batch.num_rows]
        if rows:
            self._write(pa.Table.from_batches(rows).combine_chunks())
        report = self.report + RevisionReport(changes=tuple(self.files.close()))
        return pa.RecordBatch.from_pydict({REPORT: [report.to_json()]})

    def _write(self, rows: pa.Table) -> None:
        is_ignored = pc.fill_null(pc.invert(rows[CONCERNS]), False)
        self.report += RevisionReport(counts=Counts(ignored=pc.sum(is_ignored).as_py() or 0))
        rows = rows.filter(pc.invert(is_ignored))
        buckets = self.stored.buckets.of(rows[HASH].to_numpy())
        for bucket in dict.fromkeys(buckets.tolist()):
            of_bucket = rows.filter(pa.array(buckets == bucket))
            came = of_bucket.filter(pc.is_valid(of_bucket[BATCH])).combine_chunks()
            if len(came) or bucket in self.stored.visited:
                self.fold_bucket(bucket, came)

    @abstractmethod
    def fold_bucket(self, number: int, came: pa.Table) -> None:
        """Fold the revisions of one bucket, none where it is only visited, and add to the report what is written."""


class _Writing(BucketWriter):
    def __init__(self, of: WriteRevisions) -> None:
        super().__init__(of.standing, TaskFiles(of.uri, of.changes, (of.event_time, BATCH), (of.event_time,)))
        self._of = of

    def fold_bucket(self, number: int, came: pa.Table) -> None:
        of, bucket = self._of, self._of.standing.opened(number)
        before = bucket.rows
        keys = list(zip(*(python_values(came[name]) for name in of.key), strict=True))
        deletes = pc.fill_null(came[DELETES], False).to_pylist()
        standing = _standing(bucket, came, of.key)
        sequences, retracted = python_values(came[SEQUENCE]), came[RETRACTED_TIMES].to_pylist()
        if of.extract is None:
            forgotten = self._is_forgotten(came)
            revised, counts = revise(
                keys, sequences, deletes, standing, retracted=retracted, is_forgotten=lambda place: forgotten[place]
            )
        else:
            revised, counts = revise(keys, sequences, deletes, standing, self._same(came, before), retracted)
            self.report += RevisionReport(stood=len(before) - before[ADDED].null_count)
        missing = self._missing(before, standing)
        counts += Counts(missing=len(missing), taken_back=len(missing))
        self.report += RevisionReport(counts=counts)
        self._put_forgotten(came.take(pa.array(revised.forgotten, pa.int64())))
        if not revised.accepted and not missing and number not in of.standing.visited:
            return
        newest = came.take(pa.array(revised.newest, pa.int64()))
        if of.as_before and newest[of.as_before].null_count < len(newest):
            newest = self._completed(newest, came, before, revised, deletes)
        added = newest.filter(pc.invert(pc.fill_null(newest[DELETES], False)))
        self._put(added, added, 1)
        places, causes = zip(*revised.taken_back, strict=True) if revised.taken_back else ((), ())
        self._put(before.take(pa.array(places, pa.int64())), came.take(pa.array(causes, pa.int64())), -1)
        for place in (*revised.replaced, *missing, *self._due(before, revised)):
            if place is not None:
                bucket.take(place)
        gone = before.take(pa.array(missing, pa.int64()))
        if missing:
            self._put(gone, self._causes(len(missing)), -1)
        schema = of.standing.schema
        stored = self._remembered(as_stored(newest, schema, (HASH, SEQUENCE, *of.key), self._due_of(newest)))
        files = written_bucket(of.standing, number, bucket.untouched(), stored, self._gone(gone, schema))
        self.report += RevisionReport(standing=files, replaced=of.standing.files.get(number, ()))

    def _is_forgotten(self, came: pa.Table) -> list[bool]:
        """True for rows whose time is not after the latest delete that is forgotten, by their places."""
        forgetting = self._of.forgetting
        if forgetting is None or forgetting.until is None:
            return [False] * len(came)
        return [time <= forgetting.until for time in self._times(came)]

    def _times(self, rows: pa.Table) -> list[int]:
        """The event times of rows that came; of one without when it came."""
        times = (rows[name].cast(_INSTANT).cast(pa.int64()) for name in (self._of.event_time, INGESTED_AT))
        return list(pc.coalesce(*times).to_pylist())

    def _due(self, before: pa.Table, revised: Revised) -> list[int]:
        """The places of deletes that are forgotten after this batch, and are not replaced in it."""
        forgetting = self._of.forgetting
        if forgetting is None:
            return []
        replaced = {*revised.replaced}
        due = before[DUE].cast(pa.int64()).to_pylist()
        places = [
            place
            for place, time in enumerate(due)
            if time is not None and time < forgetting.clock and place not in replaced
        ]
        until = latest_of(*(due[place] - forgetting.after for place in places))
        self.report += RevisionReport(forgotten_until=until)
        return places

    def _remembered(self, stored: pa.Table) -> pa.Table:
        """The newest revisions as they are stored, without deletes that are forgotten at once."""
        forgetting = self._of.forgetting
        if forgetting is None:
            return stored
        due = stored[DUE].cast(pa.int64())
        gone = pc.fill_null(pc.less(due, forgetting.clock), False)
        last = pc.max(due.filter(gone)).as_py()
        if last is not None:
            self.report += RevisionReport(forgotten_until=last - forgetting.after)
        return stored.filter(pc.invert(gone))

    def _put_forgotten(self, rows: pa.Table) -> None:
        """Tell of revisions of which nobody knows whether their key was gone, as rows that are rejected."""
        if not len(rows):
            return
        forgetting = self._of.forgetting
        assert forgetting is not None and forgetting.until is not None
        until = from_micros(forgetting.until).isoformat()
        reason = (
            f"forgotten: nobody knows its key, and deletes up to {until} are forgotten, of which one may be its own"
        )
        none = pa.nulls(len(rows), pa.int32())
        told = {
            **{name: rows[name] for name in (*self._of.columns, BATCH, INGESTED_AT, STAMP)},
            ORIGIN: _signed(rows[ORIGIN], self._of.changes.field(ORIGIN).type, none, rows[ADDED]),
            _REJECTED: pa.array([[reason]] * len(rows), pa.list_(pa.string())),
        }
        self._write_changes(told, len(rows))

    def _same(self, came: pa.Table, before: pa.Table) -> Callable[[int, int], bool]:
        """Tells by their places whether a row that came has the values of one that stands."""
        columns = [(python_values(came[name]), python_values(before[name])) for name in self._of.compared]
        return lambda place, stored: all(is_same(new[place], old[stored]) for new, old in columns)

    def _missing(self, before: pa.Table, standing: Mapping[tuple[Any, ...], StoredRevision]) -> list[int]:
        """The places of rows that stand and are not in the extract; none where that says nothing."""
        extract = self._of.extract
        if extract is None or not extract.is_whole:
            return []
        there = {each.place for each in standing.values()}
        stands = before[ADDED].is_valid().to_pylist()
        return [place for place, is_there in enumerate(stands) if is_there and place not in there]

    def _causes(self, number: int) -> pa.Table:
        """The cause of so many rows that are taken back: no row, but the extract as a whole."""
        extract, changes = self._of.extract, self._of.changes
        assert extract is not None
        values = {BATCH: extract.number, INGESTED_AT: extract.ingested_at, STAMP: extract.stamp, ORIGIN: None}
        columns = {
            name: pa.repeat(pa.scalar(value, changes.field(name).type), number) for name, value in values.items()
        }
        return pa.table(columns)

    def _gone(self, rows: pa.Table, schema: pa.Schema) -> pa.Table:
        """The stored rows of keys that an extract does not have: their sequence and nothing else."""
        extract = self._of.extract
        if extract is None:
            return schema.empty_table()
        columns = [
            rows[each.name]
            if each.name in (HASH, *self._of.key)
            else pa.repeat(pa.scalar(extract.number if each.name == SEQUENCE else None, each.type), len(rows))
            for each in schema
        ]
        return pa.table(columns, schema=schema)

    def _completed(
        self, newest: pa.Table, came: pa.Table, before: pa.Table, revised: Revised, deletes: Sequence[bool]
    ) -> pa.Table:
        """The newest revisions with the values that were not sent, as they stood before."""
        unsent = [frozenset(names or ()) for names in came[self._of.as_before].to_pylist()]
        for place, name in enumerate(newest.column_names):
            made_of = self._of.made_of.get(name, frozenset())
            is_unsent = [bool(made_of & names) for names in unsent]
            if not any(is_unsent[each] for each in revised.newest):
                continue
            sources = [
                _source(accepted, stored, is_unsent, deletes)
                for accepted, stored in zip(revised.accepted, revised.replaced, strict=True)
            ]
            both = pa.concat_tables([came.select([name]), before.select([name]).cast(came.select([name]).schema)])
            values = both.combine_chunks()[name].take(pa.array(sources, pa.int64()))
            newest = newest.set_column(place, newest.schema.field(place), values)
        return newest

    def _put(self, rows: pa.Table, causes: pa.Table, sign: int) -> None:
        """Write rows with their `sign`, each with the revision that is its cause."""
        if not len(rows):
            return
        of, number = self._of, len(rows)
        told = {
            **{name: rows[name] for name in of.columns},
            **{name: causes[name] for name in (BATCH, INGESTED_AT, STAMP)},
            ORIGIN: _signed(causes[ORIGIN], of.changes.field(ORIGIN).type, _signs(sign, number), rows[ADDED]),
            DAY: days_of(rows[of.event_time].cast(_INSTANT).cast(pa.int64()).to_numpy()),
        }
        self._write_changes(told, number)

    def _write_changes(self, told: Mapping[str, Any], number: int) -> None:
        """Write so many rows of the changes; columns of which nothing is told are null."""
        of = self._of
        columns = [
            as_type(told[each.name], each.type) if each.name in told else pa.nulls(number, each.type)
            for each in of.changes
        ]
        for batch in pa.table(columns, schema=of.changes).combine_chunks().to_batches():
            self.files.write(batch)

    def _due_of(self, newest: pa.Table) -> pa.Array | None:
        """The instant after which each delete is forgotten: its time, and what it is remembered for; null of others."""
        forgetting = self._of.forgetting
        if forgetting is None:
            return None
        stamps = newest[STAMP].cast(_INSTANT).cast(pa.int64())
        times = pc.max_element_wise(pa.array(self._times(newest), pa.int64()), stamps)
        gone = pc.fill_null(newest[DELETES], False)
        return pc.if_else(gone, pc.add(times, forgetting.after), pa.scalar(None, pa.int64()))


def as_stored(
    revisions: pa.Table, schema: pa.Schema, told_of_all: Collection[str], due: pa.Array | None = None
) -> pa.Table:
    """The revisions as they are stored; of one that says that its key is gone nothing but what is `told_of_all`.

    `due` are instants in microseconds since the epoch after which they are visited again, None for none.
    """
    gone = pc.fill_null(revisions[DELETES], False)
    columns = []
    for each in schema:
        if each.name == DUE:
            columns.append(pa.nulls(len(revisions), each.type) if due is None else due.cast(each.type))
            continue
        values = as_type(revisions[each.name], each.type)
        columns.append(values if each.name in told_of_all else pc.if_else(gone, pa.scalar(None, each.type), values))
    return pa.table(columns, schema=schema)


_FIELDS = ("path", "size", "rows", "day", "statistics")


def written_bucket(
    stored: StoredState, number: int, untouched: pa.RecordBatch | None, *newest: pa.Table
) -> tuple[TaskFile, ...]:
    """The file of a bucket with the rows that are `untouched`, and the `newest`; none for no rows."""
    file = BucketFile(number, stored.uri, stored.schema)
    if untouched is not None:
        file.add_rows(untouched)
    for batch in (batch for rows in newest for batch in rows.combine_chunks().to_batches()):
        if batch.num_rows:
            file.add_rows(batch)
    written = file.close()
    return () if "path" not in written else (TaskFile(**{each: written[each] for each in _FIELDS}),)


def _source(
    accepted: Sequence[int], stored: int | None, is_unsent: Sequence[bool], deletes: Sequence[bool]
) -> int | None:
    """The place that has the newest value which was sent: of a revision, or behind all of these of what is stored.

    None where there is none since the key was last gone.
    """
    for place in reversed(accepted):
        if deletes[place]:
            return None
        if not is_unsent[place]:
            return place
    return None if stored is None else len(is_unsent) + stored


def _standing(bucket: OpenBucket, came: pa.Table, key: Sequence[str]) -> dict[tuple[Any, ...], StoredRevision]:
    """The stored revision of each key that came and has one."""
    if not len(came) or not len(bucket.rows):
        return {}
    places = bucket.places(came[HASH].to_numpy())
    found = bucket.rows.take(pa.array(places))
    keys = zip(*(python_values(found[name]) for name in key), strict=True)
    gone = pc.is_null(found[ADDED]).to_pylist()
    stored = zip(python_values(found[SEQUENCE]), places.tolist(), gone, strict=True)
    return {values: StoredRevision(*each) for values, each in zip(keys, stored, strict=True)}


def _signs(sign: int, number: int) -> pa.Array:
    return pa.repeat(pa.scalar(sign, pa.int32()), number)


def _signed(origins: pa.ChunkedArray, type_: pa.StructType, signs: pa.Array, added: pa.ChunkedArray) -> pa.StructArray:
    """The origins with the signs of rows, and what identifies the row that was added."""
    fields = dict(zip((each.name for each in origins.type), origins.combine_chunks().flatten(), strict=True))
    fields |= {"change": signs, "identity": added.combine_chunks()}
    return pa.StructArray.from_arrays([as_type(fields[each.name], each.type) for each in type_], fields=list(type_))

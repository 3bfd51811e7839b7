"""The fold of revisions onto the rows that stand: what each batch adds and takes back, and what stands after it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import BATCH, DAY, INGESTED_AT, ORIGIN, STAMP, computes_as_sql, is_less, python_values
from streaming.keyed import DUE, HASH, BucketFile, OpenBucket, StoredState
from streaming.tables import TaskFile, TaskFiles

SEQUENCE, DELETES, ADDED = "_sequence", "_deletes", "_added"
"""Of a revision its place among those of its key, whether it says that the key is gone, and what identifies its row.

`_added` of a key that is gone is null.
"""
REPORT = "report"
_MICROS_A_DAY = 86_400_000_000


@dataclass(frozen=True)
class Counts:
    """The revisions of a batch by what became of them, and the rows that were taken back.

    Each revision has `added` a row, has `deleted` its key, was `superseded` by one that came before it and is newer, or
    was `passed` over, as another of the same batch is newer.
    """

    added: int = 0
    deleted: int = 0
    superseded: int = 0
    passed: int = 0
    taken_back: int = 0

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
        return self.added + self.deleted + self.superseded + self.passed

    @property
    def rows(self) -> int:
        """The rows of the changes."""
        return self.added + self.taken_back


@dataclass(frozen=True)
class Standing:
    """The newest revision of a key: its `sequence`, its `place` in what is stored, and whether its key is gone."""

    sequence: Any
    place: int
    is_gone: bool


@dataclass(frozen=True)
class Revised:
    """The outcome for some keys, by the places of revisions: `added` and `newest` ones, and of each key its standing
    row that is `taken_back`, by (revision, place of the row)."""

    added: list[int] = field(default_factory=list)
    newest: list[int] = field(default_factory=list)
    taken_back: list[tuple[int, int]] = field(default_factory=list)
    replaced: list[int] = field(default_factory=list)
    """The places of what is stored that `newest` takes the place of."""


def revise(
    keys: Sequence[tuple[Any, ...]],
    sequences: Sequence[Any],
    deletes: Sequence[bool],
    standing: Mapping[tuple[Any, ...], Standing],
) -> tuple[Revised, Counts]:
    """Fold the revisions of one batch, those of each key together and in the order in which they came.

    The greatest sequence wins, of equal ones the first; only what is new after the whole batch is told.
    """
    revised, superseded, passed, deleted = Revised(), 0, 0, 0
    for key, places in groupby(range(len(keys)), keys.__getitem__):
        before = standing.get(key)
        newest: int | None = None
        sequence = None if before is None else before.sequence
        for place in places:
            if (before is None and newest is None) or is_less(sequence, sequences[place]):
                passed += newest is not None
                newest, sequence = place, sequences[place]
            else:
                superseded += 1
        if newest is None:
            continue
        revised.newest.append(newest)
        if deletes[newest]:
            deleted += 1
        else:
            revised.added.append(newest)
        if before is not None:
            revised.replaced.append(before.place)
            if not before.is_gone:
                revised.taken_back.append((newest, before.place))
    return revised, Counts(len(revised.added), deleted, superseded, passed, len(revised.taken_back))


@dataclass(frozen=True)
class RevisionReport:
    """The report of a task, or of several: the files of the changes and of what stands, and which buckets these are."""

    changes: tuple[TaskFile, ...] = ()
    standing: tuple[TaskFile, ...] = ()
    buckets: tuple[int, ...] = ()
    counts: Counts = Counts()

    def __add__(self, other: RevisionReport) -> RevisionReport:
        return RevisionReport(
            self.changes + other.changes,
            self.standing + other.standing,
            self.buckets + other.buckets,
            self.counts + other.counts,
        )

    def to_json(self) -> str:
        """The report as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> RevisionReport:
        """The inverse of `to_json`."""
        told = json.loads(text)
        changes, standing = (tuple(TaskFile(**file) for file in told[name]) for name in ("changes", "standing"))
        return cls(changes, standing, tuple(told["buckets"]), Counts(**told["counts"]))


@dataclass(frozen=True)
class WriteRevisions:
    """Fold the revisions of a partition; write what follows to the log of changes at `uri`, and what stands after it.

    The rows of a partition have `_hash`, `_batch`, `_sequence`, `_deletes`, `_added`, the columns of the log of
    revisions, and are in the order of their hashes, keys and places; a row without `_batch` stands for its bucket.
    """

    key: tuple[str, ...]
    columns: tuple[str, ...]
    event_time: str
    uri: str
    changes: pa.Schema
    standing: StoredState

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = [batch for batch in batches if batch.num_rows]
        report = _Writing(self).report(pa.Table.from_batches(rows).combine_chunks()) if rows else RevisionReport()
        yield pa.RecordBatch.from_pydict({REPORT: [report.to_json()]})


class _Writing:
    """The files of one task."""

    def __init__(self, of: WriteRevisions) -> None:
        self._of = of
        self._changes = TaskFiles(of.uri, of.changes, (of.event_time, BATCH), (of.event_time,))
        self._report = RevisionReport()

    def report(self, rows: pa.Table) -> RevisionReport:
        """The report, once all files are written."""
        stored = self._of.standing
        buckets = stored.buckets.of(rows[HASH].to_numpy())
        for bucket in dict.fromkeys(buckets.tolist()):
            of_bucket = rows.filter(pa.array(buckets == bucket))
            came = of_bucket.filter(pc.is_valid(of_bucket[BATCH])).combine_chunks()
            if len(came) or bucket in stored.visited:
                self._bucket(bucket, came)
        return self._report + RevisionReport(changes=tuple(self._changes.close()))

    def _bucket(self, number: int, came: pa.Table) -> None:
        of, bucket = self._of, self._of.standing.opened(number)
        before = bucket.rows
        keys = list(zip(*(python_values(came[name]) for name in of.key), strict=True))
        deletes = pc.fill_null(came[DELETES], False).to_pylist()
        revised, counts = revise(keys, python_values(came[SEQUENCE]), deletes, _standing(bucket, came, of.key))
        self._report += RevisionReport(counts=counts)
        if not revised.newest and number not in of.standing.visited:
            return
        self._write_changes(came, before, revised)
        for place in revised.replaced:
            bucket.take(place)
        self._write_standing(number, bucket, came.take(pa.array(revised.newest, pa.int64())))

    def _write_changes(self, came: pa.Table, before: pa.Table, revised: Revised) -> None:
        causes, places = zip(*revised.taken_back, strict=True) if revised.taken_back else ((), ())
        added = came.take(pa.array(revised.added, pa.int64()))
        taken = before.take(pa.array(places, pa.int64()))
        self._put(added, added, 1)
        self._put(taken, came.take(pa.array(causes, pa.int64())), -1)

    def _put(self, rows: pa.Table, causes: pa.Table, sign: int) -> None:
        """Write rows with their `sign`, each with the revision that is its cause."""
        if not len(rows):
            return
        of, number = self._of, len(rows)
        told = {
            **{name: rows[name] for name in of.columns},
            **{name: causes[name] for name in (BATCH, INGESTED_AT, STAMP)},
            ORIGIN: _signed(causes[ORIGIN], of.changes.field(ORIGIN).type, sign, rows[ADDED]),
            DAY: _days(rows[of.event_time]),
        }
        columns = [
            _as_type(told[each.name], each.type) if each.name in told else pa.nulls(number, each.type)
            for each in of.changes
        ]
        for batch in pa.table(columns, schema=of.changes).combine_chunks().to_batches():
            self._changes.write(batch)

    def _write_standing(self, number: int, bucket: OpenBucket, newest: pa.Table) -> None:
        schema = self._of.standing.schema
        file = BucketFile(number, self._of.standing.uri, schema)
        untouched = bucket.untouched()
        if untouched is not None:
            file.add_rows(untouched)
        if len(newest):
            for batch in pa.table(self._stored(newest, schema), schema=schema).combine_chunks().to_batches():
                file.add_rows(batch)
        written = file.close()
        files = () if "path" not in written else (TaskFile(**{each: written[each] for each in _FIELDS}),)
        self._report += RevisionReport(standing=files, buckets=(number,))

    def _stored(self, newest: pa.Table, schema: pa.Schema) -> list[pa.Array | pa.ChunkedArray]:
        """The columns of what is stored; of a key that is gone nothing but its sequence."""
        gone = pc.fill_null(newest[DELETES], False)
        columns = []
        for each in schema:
            if each.name == DUE:
                columns.append(pa.nulls(len(newest), each.type))
            elif each.name in (HASH, SEQUENCE, *self._of.key):
                columns.append(_as_type(newest[each.name], each.type))
            else:
                values = _as_type(newest[each.name], each.type)
                columns.append(pc.if_else(gone, pa.scalar(None, each.type), values))
        return columns


_FIELDS = ("path", "size", "rows", "day", "statistics")


def _standing(bucket: OpenBucket, came: pa.Table, key: Sequence[str]) -> dict[tuple[Any, ...], Standing]:
    """What is stored of the keys that came."""
    if not len(came) or not len(bucket.rows):
        return {}
    places = bucket.places(came[HASH].to_numpy())
    found = bucket.rows.take(pa.array(places))
    keys = zip(*(python_values(found[name]) for name in key), strict=True)
    gone = pc.is_null(found[ADDED]).to_pylist()
    stored = zip(python_values(found[SEQUENCE]), places.tolist(), gone, strict=True)
    return {values: Standing(*each) for values, each in zip(keys, stored, strict=True)}


def _signed(origins: pa.ChunkedArray, type_: pa.StructType, sign: int, added: pa.ChunkedArray) -> pa.StructArray:
    """The origins with the sign of a row, and what identifies the row that was added."""
    number = len(origins)
    fields = dict(zip((each.name for each in origins.type), origins.combine_chunks().flatten(), strict=True))
    fields |= {"change": pa.repeat(pa.scalar(sign, pa.int32()), number), "identity": added.combine_chunks()}
    return pa.StructArray.from_arrays([_as_type(fields[each.name], each.type) for each in type_], fields=list(type_))


def _days(times: pa.ChunkedArray) -> pa.Array:
    micros = times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return pa.array((micros // _MICROS_A_DAY).astype(np.int32)).cast(pa.date32())


def _as_type(values: pa.Array | pa.ChunkedArray, type_: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return values if values.type == type_ else values.cast(type_)

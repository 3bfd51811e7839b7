"""The work of Spark's Python workers in a step: fold their partition, and write what follows into the tables' files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import accumulate, islice, repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import AT, EPOCH, MICROSECOND, FunctionError, computes_as_sql, python_values, row_class
from streaming.declare import STATE, Keyed
from streaming.keyed.fold import FOREVER, NEVER, Fold, Key, KeyState, Observe, Output
from streaming.keyed.rules import PinnedRules
from streaming.keyed.state_table import DUE, HASH, TIMERS, OpenBucket, StoredKey, StoredState
from streaming.tables import TaskFile, TaskFiles

TIME, STAMP, STREAM, MATCHING = "_time", "_stamp", "_stream", "_matching"
"""Columns that the fold reads beside the hash, the keys, batch, sign and origin, and the streams' own."""

_AT_ONCE = 10_000
WRITTEN = (
    "suffix string, path string, size bigint, rows bigint, day string, statistics string, bucket int, due bigint, "
    "error string"
)
"""The report of a task: its files, each bucket of state that it has folded and the first timer in it, or why it failed.

A bucket of which nothing is kept has no file.
"""

REPORT = pa.schema(
    [
        *((name, pa.string()) for name in ("suffix", "path")),
        *((name, pa.int64()) for name in ("size", "rows")),
        *((name, pa.string()) for name in ("day", "statistics")),
        ("bucket", pa.int32()),
        ("due", pa.int64()),
        ("error", pa.string()),
    ]
)
_DAY = timedelta(days=1) // MICROSECOND
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class BucketBegun:
    """The beginning of a bucket: what is kept from here on is of it, up to the next one."""

    bucket: int


@dataclass(frozen=True)
class KeyStates:
    """Keys of which there is something to keep, and for each its hash and what that is; hashes rise."""

    hashes: list[int] = field(default_factory=list)
    keys: list[tuple[Any, ...]] = field(default_factory=list)
    states: list[tuple[Any, ...]] = field(default_factory=list)
    timers: list[Mapping[str, int]] = field(default_factory=list)

    def add(self, hash_of_key: int, key: tuple[Any, ...], kept: KeyState) -> None:
        """One more."""
        self.hashes.append(hash_of_key)
        self.keys.append(key)
        self.states.append(kept.state)
        self.timers.append(kept.timers)


@dataclass(frozen=True)
class Untouched:
    """State of keys that had no row, and no timer that was due, as it is stored."""

    state: pa.RecordBatch


Folded = BucketBegun | list[Output] | KeyStates | Untouched


def key_column(place: int) -> str:
    """The name under which the key at this place goes into the fold."""
    return f"_key{place}"


def value_column(stream: int, place: int) -> str:
    """The name under which the column at this place, of the stream at that one, goes into the fold."""
    return f"_value{stream}_{place}"


def fold_partition(
    keyed: Keyed,
    clock: int,
    batches: Iterable[pa.RecordBatch],
    rules: PinnedRules | None = None,
    state: StoredState | None = None,
    observe: Observe | None = None,
) -> Iterator[Folded]:
    """Fold rows that are sorted by the hash of their key, by key, and those of a key in their order.

    The columns are `_hash`, the keys, `_time`, `_stamp`, `_batch`, `_stream` (the place of the row's stream) and those
    of each stream that are no keys. A key's rows are never gathered, so that memory does not depend on how many there
    are. `rules` are those for these rows, where there are some. Behind `_stream` come `_change`, where the function is
    called for rows that are taken back, and with conditions `_matching`: the places of those that are true of the row.
    Of `state`, where some is given, the buckets are folded that have rows here, and of those to be visited the ones for
    which a row without `_batch` stands here, each in one go. `observe` is told of each row and timer, as `Fold` says.

    Raises:
        FunctionError: as `Fold`.
    """
    fold = _PartitionFold(keyed, clock, rules, state, observe)
    for batch in batches:
        yield from fold.batch(batch)
    yield from fold.end()


class _PartitionFold:
    """The place in the rows of a partition: a bucket, and a key in it."""

    def __init__(
        self,
        keyed: Keyed,
        clock: int,
        rules: PinnedRules | None,
        state: StoredState | None,
        observe: Observe | None,
    ) -> None:
        self._fold = Fold(keyed, rules, observe)
        self._clock = clock
        self._state = state
        self._keys = len(keyed.by)
        self._time = self._keys + 1
        told = self._time + 4
        self._change = told if keyed.retractions else None
        self._matching = None if keyed.condition is None else told + keyed.retractions
        self._made_of = _row_makers(keyed, told + keyed.retractions + (keyed.condition is not None))
        self._key: Key | None = None
        self._hash = 0
        self._number: int | None = None
        self._bucket: OpenBucket | None = None
        self._found: dict[tuple[Any, ...], StoredKey] = {}
        self._kept = KeyStates()

    def batch(self, whole: pa.RecordBatch) -> Iterator[Folded]:
        """Go on with the next rows."""
        number = whole.column(self._time + 2)
        rows = whole.filter(pc.is_valid(number)) if number.null_count else whole
        entries = self._entries(rows)
        if self._state is None:
            yield from self._rows(entries)
            return
        buckets = self._state.buckets.of(whole.column(0).to_numpy())
        hashes, of_rows = rows.column(0).to_numpy(), self._state.buckets.of(rows.column(0).to_numpy())
        for bucket in dict.fromkeys(buckets.tolist()):
            first, last = of_rows.searchsorted(bucket), of_rows.searchsorted(bucket, side="right")
            # Where its rows begin in the next batch, it is begun there.
            if bucket != self._number and (first < last or bucket in self._state.visited):
                yield from self._begin(bucket)
            if first < last:
                assert self._bucket is not None
                self._found = self._bucket.find(hashes[first:last])
                yield from self._rows(islice(entries, int(last - first)))

    def end(self) -> Iterator[Folded]:
        """No row comes any more."""
        yield from self._end_bucket()
        if self._fold.outputs:
            yield self._taken()

    def _entries(self, rows: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        """Each row as its hash, its key, what the fold is told of it, a row of each stream, what matches, its sign."""
        lists = [python_values(column) for column in rows.columns]
        of_rows = lists[self._time : self._time + 4]
        values_of = zip(*lists[1 : self._time], strict=True) if self._keys else repeat(())
        # A row as each stream would have it: it is of one of them.
        as_rows = zip(
            *(map(as_row, zip(*(lists[place] for place in places), strict=True)) for as_row, places in self._made_of),
            strict=True,
        )
        # Each is endless where the function has no keys, its rules have no conditions, or no row is taken back.
        true = repeat(()) if self._matching is None else lists[self._matching]
        changes = repeat(1) if self._change is None else lists[self._change]
        return zip(lists[0], values_of, *of_rows, as_rows, true, changes, strict=False)

    def _rows(self, entries: Iterator[tuple[Any, ...]]) -> Iterator[Folded]:
        fold, key, outputs = self._fold, self._key, self._fold.outputs
        for of_key, values, at, stamp, number, of, row, places, change in entries:
            if key is None or values != key.key:
                self._end_key()
                key = self._key = self._begun(of_key, values)
                if len(self._kept.hashes) >= _AT_ONCE:
                    yield self._keys_kept()
            fold.row(key, at, NEVER if stamp is None else stamp, row[of], number, of, places, change)
            if len(outputs) >= _AT_ONCE:
                yield self._taken()

    def _begun(self, of_key: int, values: tuple[Any, ...]) -> Key:
        self._hash = of_key
        stored = self._found.get(values)
        if stored is None:
            return self._fold.begin(values)
        assert self._bucket is not None
        place, _, state, timers = stored
        self._bucket.take(place)
        return self._fold.begin(values, state, timers)

    def _begin(self, bucket: int) -> Iterator[Folded]:
        assert self._state is not None
        yield from self._end_bucket()
        self._number, self._bucket = bucket, self._state.opened(bucket)
        yield BucketBegun(bucket)

    def _end_bucket(self) -> Iterator[Folded]:
        self._end_key()
        if self._bucket is not None:
            for values, (_, of_key, state, timers) in self._bucket.take_due(self._clock):
                self._hash, self._key = of_key, self._fold.begin(values, state, timers)
                self._end_key()
                # When a clock leaps, the timers of every key in the partition may fire at once.
                if len(self._kept.hashes) >= _AT_ONCE:
                    yield self._keys_kept()
                if len(self._fold.outputs) >= _AT_ONCE:
                    yield self._taken()
        if self._kept.hashes:
            yield self._keys_kept()
        untouched = None if self._bucket is None else self._bucket.untouched()
        if untouched is not None:
            yield Untouched(untouched)
        self._bucket = None

    def _end_key(self) -> None:
        key, self._key = self._key, None
        if key is None:
            return
        if key._due <= self._clock:
            self._fold.advance(key, self._clock)
        kept = self._fold.kept(key)
        if kept is not None:
            self._kept.add(self._hash, key.key, kept)

    def _keys_kept(self) -> KeyStates:
        kept, self._kept = self._kept, KeyStates()
        return kept

    def _taken(self) -> list[Output]:
        outputs = list(self._fold.outputs)
        self._fold.outputs.clear()
        return outputs


def _row_makers(keyed: Keyed, others: int) -> list[tuple[Callable[[Any], Any], list[int]]]:
    """For each stream what makes a row of its values, and where these are.

    Keys are among the keys, the others behind everything else, stream after stream and in order.
    """
    makers: list[tuple[Callable[[Any], Any], list[int]]] = []
    for stream in keyed.streams:
        rest = [name for name in stream.columns if name not in keyed.by]
        of_keys = {name: 1 + place for place, name in enumerate(keyed.by)}
        places = [of_keys[name] if name in of_keys else others + rest.index(name) for name in stream.columns]
        makers.append((partial(tuple.__new__, row_class(stream.columns)), places))
        others += len(rest)
    return makers


@dataclass(frozen=True)
class WriteTables:
    """Fold a partition up to `clock` and write each output in `schemas`, by suffix, at its place in `uris`, and state.

    The state goes beside the files that `state` is read from.
    """

    keyed: Keyed
    clock: int
    uris: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]
    written_at: int
    state: StoredState
    rules: PinnedRules | None = None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _Writer(self)
        try:
            for folded in fold_partition(self.keyed, self.clock, batches, self.rules, self.state):
                writer.add(folded)
            yield pa.RecordBatch.from_pylist(writer.close(), schema=REPORT)
        except FunctionError as error:
            # Raised here, it would come back as a text within Spark's own traces.
            yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=REPORT)


class _Writer:
    def __init__(self, task: WriteTables) -> None:
        self._task = task
        self._files = {suffix: TaskFiles(task.uris[suffix], schema, (AT,)) for suffix, schema in task.schemas.items()}
        self._rows: dict[tuple[str, int], list[tuple[Any, ...]]] = {}
        """By output and day since the epoch."""
        self._waiting = 0
        self._state: BucketFile | None = None
        self._reports: list[dict[str, Any]] = []

    def add(self, folded: Folded) -> None:
        """Take what follows from some rows, and write it once it is much."""
        if isinstance(folded, list):
            for to, key, at, values in folded:
                if to in self._files:
                    self._add(to, at // _DAY, (*key, at, *values, self._task.written_at))
            if self._waiting >= _ROWS_AT_ONCE:
                self._write()
        elif isinstance(folded, BucketBegun):
            self._end_bucket()
            self._state = BucketFile(folded.bucket, self._task.state.uri, self._task.state.schema)
        elif isinstance(folded, KeyStates):
            assert self._state is not None
            self._state.add_rows(_as_stored(folded, self._task.state.schema))
        else:
            assert self._state is not None
            self._state.add_rows(folded.state)

    def close(self) -> list[dict[str, Any]]:
        """Write the rest; returns a report of each file and bucket."""
        self._write()
        self._end_bucket()
        files = [(suffix, file) for suffix, files in self._files.items() for file in files.close()]
        return [*self._reports, *({"suffix": suffix, **vars(file)} for suffix, file in files)]

    def _end_bucket(self) -> None:
        if self._state is not None:
            self._reports.append(self._state.close())
        self._state = None

    def _add(self, suffix: str, day: int, row: tuple[Any, ...]) -> None:
        self._rows.setdefault((suffix, day), []).append(row)
        self._waiting += 1

    def _write(self) -> None:
        for (suffix, day), rows in self._rows.items():
            day_written = EPOCH.date() + timedelta(days=day)
            self._files[suffix].write(_batch_of(rows, self._task.schemas[suffix]), day_written)
        self._rows.clear()
        self._waiting = 0


class BucketFile:
    """The file of the state table at `uri` that a bucket becomes; none where there are no rows."""

    def __init__(self, bucket: int, uri: str, schema: pa.Schema) -> None:
        self._bucket = bucket
        self._schema = schema
        self._files = TaskFiles(uri, schema, (HASH, DUE), diverse_numbers="none")
        self._rows: list[tuple[Any, ...]] = []
        self._due = FOREVER

    def add(self, row: tuple[Any, ...]) -> None:
        """A row in the order of the columns; rows rise by their hash, as far as may be."""
        self._rows.append(row)
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._write()

    def add_rows(self, rows: pa.RecordBatch) -> None:
        """Rows as they are stored."""
        self._write()
        self._put(rows)

    def close(self) -> dict[str, Any]:
        """End the file; returns the report of the bucket."""
        self._write()
        files: list[TaskFile] = self._files.close()
        of_file = vars(files[0]) if files else {}
        return {"suffix": STATE, **of_file, "bucket": self._bucket, "due": self._due}

    def _write(self) -> None:
        if self._rows:
            self._put(_batch_of(self._rows, self._schema))
            self._rows.clear()

    def _put(self, rows: pa.RecordBatch) -> None:
        first = pc.min(rows.column(DUE).cast(pa.int64())).as_py()
        self._due = min(self._due, FOREVER if first is None else first)
        self._files.write(rows)


def _batch_of(rows: list[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    return _of_columns(zip(*rows, strict=True), schema)


def _as_stored(kept: KeyStates, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of the state's table."""
    due = [min(timers.values()) if timers else None for timers in kept.timers]
    keys, states = zip(*kept.keys, strict=True), zip(*kept.states, strict=True)
    return _of_columns((kept.hashes, due, *keys, *states, _entries(kept.timers, schema.field(TIMERS).type)), schema)


def _entries(maps: Sequence[Mapping[str, int]], kind: pa.MapType) -> pa.Array:
    """The maps as a column, without an object for each entry: most keys of most functions have none."""
    ends = pa.array(accumulate(map(len, maps), initial=0), pa.int32())
    names = pa.array([name for each in maps for name in each], kind.key_type)
    return pa.MapArray.from_arrays(ends, names, pa.array([at for each in maps for at in each.values()], kind.item_type))


def _of_columns(columns: Iterable[Sequence[Any] | pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, field.type)
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class LastTimer:
    """Fold a partition up to `clock` and report the last timer that is pending then, as `due`; nothing is written."""

    keyed: Keyed
    clock: int
    state: StoredState
    rules: PinnedRules | None = None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last = NEVER
        try:
            for folded in fold_partition(self.keyed, self.clock, batches, self.rules, self.state):
                if isinstance(folded, KeyStates):
                    last = max([last, *(at for timers in folded.timers for at in timers.values())])
                elif isinstance(folded, Untouched):
                    pending = pc.max(folded.state.column(TIMERS).items.cast(pa.int64())).as_py()
                    last = max(last, NEVER if pending is None else pending)
            yield pa.RecordBatch.from_pylist([{"due": last}], schema=REPORT)
        except FunctionError as error:
            yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=REPORT)


@dataclass(frozen=True)
class RowsOf:
    """Fold a partition up to `clock` and hand on the rows of one output, of the columns in `schema`."""

    keyed: Keyed
    clock: int
    suffix: str
    schema: pa.Schema
    rules: PinnedRules | None = None

    @computes_as_sql
    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for folded in fold_partition(self.keyed, self.clock, batches, self.rules):
            rows: list[tuple[Any, ...]] = []
            if isinstance(folded, list):
                rows = [(*each.key, each.at, *each.values) for each in folded if each.to == self.suffix]
            elif isinstance(folded, KeyStates) and self.suffix == STATE:
                rows = [(*key, *state) for key, state in zip(folded.keys, folded.states, strict=True)]
            if rows:
                yield _batch_of(rows, self.schema)

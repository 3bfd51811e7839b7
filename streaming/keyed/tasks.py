"""The work of Spark's Python workers in a step: fold their partition, and write what follows into the tables' files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streaming.base import AT, EPOCH, MICROSECOND, FunctionError, computes_as_sql
from streaming.declare import STATE, Keyed
from streaming.keyed.key import FOREVER, NEVER
from streaming.keyed.partition import BucketBegun, Folded, KeyStates, Untouched, fold_partition
from streaming.keyed.rules import PinnedRules
from streaming.keyed.state_table import DUE, HASH, TIMERS, StoredState
from streaming.tables import TaskFile, TaskFiles

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
        # The values of a hash hardly repeat, so a dictionary of them would be for nothing.
        self._files = TaskFiles(uri, schema, (HASH, DUE), diverse=(HASH, DUE))
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

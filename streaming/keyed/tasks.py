"""What Spark's Python workers do in a step: fold their partition, and write what follows into the tables' files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import pyarrow as pa

from streaming.base import AT, EPOCH, MICROSECOND, FunctionError
from streaming.declare import STATE, Keyed
from streaming.keyed.key import FOREVER, NEVER, Output
from streaming.keyed.partition import Folded, KeyKept, Untouched, fold_partition
from streaming.keyed.rules import PinnedRules
from streaming.tables import TaskFiles

WRITTEN = (
    "suffix string, path string, size bigint, rows bigint, day string, statistics string, due bigint, error string"
)
"""What a task reports: its files, the first timer in what it keeps, or why it failed."""

REPORT = pa.schema(
    [
        *((name, pa.string()) for name in ("suffix", "path")),
        *((name, pa.int64()) for name in ("size", "rows")),
        *((name, pa.string()) for name in ("day", "statistics")),
        ("due", pa.int64()),
        ("error", pa.string()),
    ]
)
_DAY = timedelta(days=1) // MICROSECOND
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class WriteTables:
    """Fold a partition up to `clock` and write each table in `schemas`, by suffix, at its place in `uris`."""

    keyed: Keyed
    clock: int
    uris: Mapping[str, str]
    schemas: Mapping[str, pa.Schema]
    written_at: int
    rules: PinnedRules | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        writer = _Writer(self)
        try:
            for folded in fold_partition(self.keyed, self.clock, batches, self.rules):
                writer.add(folded)
            yield pa.RecordBatch.from_pylist(writer.close(), schema=REPORT)
        except FunctionError as error:
            # Raised here, it would come back as a text within Spark's own traces.
            yield pa.RecordBatch.from_pylist([{"error": str(error)}], schema=REPORT)


class _Writer:
    def __init__(self, task: WriteTables) -> None:
        self._task = task
        self._files = {
            suffix: TaskFiles(task.uris[suffix], schema, () if suffix == STATE else (AT,))
            for suffix, schema in task.schemas.items()
        }
        self._rows: dict[tuple[str, date | None], list[tuple[Any, ...]]] = {}
        self._waiting = 0
        self._due = FOREVER

    def add(self, folded: Folded) -> None:
        """Take what follows from some rows, and write it once it is much."""
        if isinstance(folded, list):
            for output in folded:
                if output.to in self._files:
                    self._add(output.to, _day(output), (*output.key, output.at, *output.values, self._task.written_at))
        elif isinstance(folded, KeyKept):
            due = folded.kept.due
            self._due = min(self._due, FOREVER if due is None else due)
            timers = list(folded.kept.timers.items())
            self._add(STATE, None, (*folded.key, *folded.kept.state, timers, due))
        else:
            self._add_untouched(folded)
        if self._waiting >= _ROWS_AT_ONCE:
            self._write()

    def close(self) -> list[dict[str, Any]]:
        """Write the rest; returns a report of each file."""
        self._write()
        files = [(suffix, file) for suffix, files in self._files.items() for file in files.close()]
        return [{"suffix": suffix, **vars(file), "due": self._due} for suffix, file in files]

    def _add(self, suffix: str, day: date | None, row: tuple[Any, ...]) -> None:
        self._rows.setdefault((suffix, day), []).append(row)
        self._waiting += 1

    def _add_untouched(self, untouched: Untouched) -> None:
        schema = self._task.schemas[STATE]
        columns = [column.cast(field.type) for column, field in zip(untouched.state.columns, schema, strict=True)]
        dues = columns[-1].cast(pa.int64()).drop_null().to_numpy()
        self._due = min(self._due, int(dues.min()) if len(dues) else FOREVER)
        self._files[STATE].write(pa.RecordBatch.from_arrays(columns, schema=schema))

    def _write(self) -> None:
        for (suffix, day), rows in self._rows.items():
            schema = self._task.schemas[suffix]
            columns = zip(zip(*rows, strict=True), schema, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            self._files[suffix].write(pa.RecordBatch.from_arrays(arrays, schema=schema), day)
        self._rows.clear()
        self._waiting = 0


@dataclass(frozen=True)
class LastTimer:
    """Fold a partition up to `clock` and report the last timer that is pending then, as `due`; nothing is written."""

    keyed: Keyed
    clock: int
    rules: PinnedRules | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last = NEVER
        try:
            for folded in fold_partition(self.keyed, self.clock, batches, self.rules):
                if isinstance(folded, KeyKept):
                    last = max(last, *folded.kept.timers.values(), NEVER)
                elif isinstance(folded, Untouched):
                    timers = folded.state.column(folded.state.num_columns - 2)
                    pending = timers.items.cast(pa.int64()).to_numpy(zero_copy_only=False)
                    last = max(last, int(pending.max()) if len(pending) else NEVER)
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

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for folded in fold_partition(self.keyed, self.clock, batches, self.rules):
            rows: list[tuple[Any, ...]] = []
            if isinstance(folded, list):
                rows = [(*each.key, each.at, *each.values) for each in folded if each.to == self.suffix]
            elif isinstance(folded, KeyKept) and self.suffix == STATE:
                rows = [(*folded.key, *folded.kept.state)]
            if rows:
                arrays = [
                    pa.array(values, field.type)
                    for values, field in zip(zip(*rows, strict=True), self.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _day(output: Output) -> date:
    return EPOCH.date() + timedelta(days=output.at // _DAY)

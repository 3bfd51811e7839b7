"""Plans and makes the rows of a generator."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType, TimestampType

from streaming.base import SourceError, from_micros, to_micros, utc_now
from streaming.sources.offsets import OffsetReader, Offsets

Row = Mapping[str, Any] | str | bytes | None
"""A row that a generator makes: a mapping becomes JSON, text and bytes are payloads as they are, None is a null one."""

BEGAN = "began"
"""The part of an offset that tells when the first row was due, in microseconds; the others are tasks by number."""

_SECOND = 1_000_000
_ROWS_AT_ONCE = 1_000

Piece = tuple[int, int, int, int]
"""Rows of one task: its number, the offsets in [first, end), and when the generator began."""


class GeneratorReader(OffsetReader):
    """Makes rows by `row`; of each task `rows` in all, `rate` a second, null for no limit."""

    def __init__(
        self,
        row: Callable[[int, int], Row],
        tasks: int,
        rate: float | None,
        rows: int | None,
        rows_per_batch: int,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._row = row
        self._tasks = tasks
        self._rate = rate
        self._rows = rows
        self._rows_per_batch = rows_per_batch
        self._now = now

    @property
    def schema(self) -> StructType:
        """The payload, and the origin."""
        return StructType(
            [
                StructField("_raw", BinaryType()),
                StructField("task", IntegerType()),
                StructField("offset", LongType()),
                StructField("due", TimestampType()),
            ]
        )

    @property
    def rows_per_batch(self) -> int:
        return self._rows_per_batch

    def first(self) -> Offsets:
        return {str(task): 0 for task in range(self._tasks)} | {BEGAN: 0}

    def newest(self, begins: Offsets) -> Offsets:
        now = to_micros(self._now())
        began = begins[BEGAN] or now
        ends = {task: self._due(offset, began, now) for task, offset in self._offsets(begins).items()}
        # A task that is declared no more is kept, so that it goes on where it was should it come back.
        return begins if ends == self._offsets(begins) else {**begins, **ends, BEGAN: began}

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        most = max(1, rows // self._tasks)
        taken = self._offsets(begins)
        ends = {task: min(newest[task], offset + most) for task, offset in taken.items()}
        return begins if ends == taken else {**begins, **ends, BEGAN: newest[BEGAN]}

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[Piece]:
        taken = {task: offset for task, offset in ends.items() if task != BEGAN}
        bounds = ((task, begins.get(task, 0), end) for task, end in taken.items())
        return [(int(task), first, end, ends[BEGAN]) for task, first, end in bounds if end > first]

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        task, first, end, began = piece
        schema = to_arrow_schema(self.schema, timezone="UTC")
        for start in range(first, end, _ROWS_AT_ONCE):
            offsets = range(start, min(start + _ROWS_AT_ONCE, end))
            payloads = [self._payload(task, offset) for offset in offsets]
            dues = [from_micros(self._due_at(offset, began)) for offset in offsets]
            columns = [payloads, [task] * len(offsets), offsets, dues]
            arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _offsets(self, begins: Offsets) -> dict[str, int]:
        """The next row of each task; one that is new begins with its first."""
        return {str(task): begins.get(str(task), 0) for task in range(self._tasks)}

    def _due(self, offset: int, began: int, now: int) -> int:
        """The number of rows of a task that are due by now, the first one at once."""
        if self._rate is None:
            due = offset + max(1, self._rows_per_batch // self._tasks) if self._rows is None else self._rows
        else:
            due = int((now - began) * self._rate // _SECOND) + 1
        return max(offset, due if self._rows is None else min(due, self._rows))

    def _due_at(self, offset: int, began: int) -> int:
        return began if self._rate is None else began + int(offset * _SECOND / self._rate)

    def _payload(self, task: int, offset: int) -> bytes | None:
        try:
            row = self._row(task, offset)
            match row:
                case None | bytes():
                    return row
                case str():
                    return row.encode()
                case Mapping():
                    return json.dumps(dict(row), default=_plain).encode()
        except Exception as error:
            raise SourceError(
                f"the generator raised {type(error).__name__} at row {offset} of task {task}: {error}. Correct the "
                "function and start again; nothing is lost."
            ) from error
        raise SourceError(
            f"the generator gave {row!r} as row {offset} of task {task}; give a mapping, text, bytes or None."
        )


def _plain(value: object) -> str | float:
    match value:
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
    raise TypeError(f"a {type(value).__name__} cannot be written as JSON: {value!r}")

"""Activity sessions with late rows: which results of a key a correction replaces. Pure.

A key's activity session is a run of its rows with less than `idle` between each and the next, whichever of them came
late. The key has no state where one begins, so that its rows alone tell what follows. What it emitted before its first
late row is what it emits with it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from streaming.base import MICROSECOND, python_values

START, FIRST_LATE, END, LATE_ROWS = "_start", "_first_late", "_end", "_late_rows"
"""Columns of a session: when it begins, its first late row, when it has ended; per day and stream, what came late."""

LATE_ENTRY = pa.struct([("day", pa.int32()), ("stream", pa.int32()), ("batch", pa.int64()), ("rows", pa.int64())])
"""Late rows of a session: their day since the epoch, their stream, their newest batch, and how many they are."""

_TIME = pa.timestamp("us", "UTC")
_DAY = timedelta(days=1) // MICROSECOND
_SESSIONS_AT_ONCE = 10_000


class TimedRow(NamedTuple):
    """What is to be known of a row: its key, its event time, whether it is late, its stream's place, its batch."""

    key: tuple[Any, ...]
    at: int
    is_late: bool
    of: int = 0
    batch: int = 0


@dataclass
class LateSession:
    """A session of a key with late rows, in microseconds: those of its rows are in [start, end), `idle` before `end`.

    `late`: by day since the epoch and place of the stream, how many rows came late, and the newest batch of them.
    """

    key: tuple[Any, ...]
    start: int
    first_late: int
    end: int
    late: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def replaces(self, at: int) -> bool:
        """Whether results of this time are others with the late rows than without them."""
        return self.first_late <= at < self.end


def late_sessions(idle: int, rows: Iterable[TimedRow]) -> Iterator[LateSession]:
    """The sessions with late rows, of rows sorted by key and time."""
    key: tuple[Any, ...] | None = None
    start = last = 0
    session: LateSession | None = None
    for row in rows:
        if row.key != key or row.at - last >= idle:
            if session is not None:
                yield session
            key, start, session = row.key, row.at, None
        last = row.at
        if row.is_late:
            session = session or LateSession(row.key, start, row.at, row.at)
            place = (row.at // _DAY, row.of)
            count, newest = session.late.get(place, (0, row.batch))
            session.late[place] = (count + 1, max(newest, row.batch))
        if session is not None:
            session.end = row.at + idle
    if session is not None:
        yield session


@dataclass(frozen=True)
class LateSessionsOf:
    """The same of a Spark partition whose columns are the keys, and then those of a `TimedRow`; `keys` are theirs."""

    idle: int
    keys: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it gives: keys, the bounds, and what came late."""
        bounds = ((name, _TIME) for name in (START, FIRST_LATE, END))
        return pa.schema([*self.keys, *(pa.field(*each) for each in bounds), (LATE_ROWS, pa.list_(LATE_ENTRY))])

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sessions = late_sessions(self.idle, self._rows(batches))
        while rows := [_values(session) for session in islice(sessions, _SESSIONS_AT_ONCE)]:
            columns = zip(zip(*rows, strict=True), self.schema, strict=True)
            arrays = [pa.array(values, each.type) for values, each in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TimedRow]:
        keys = len(self.keys)
        for batch in batches:
            lists = [python_values(column) for column in batch.columns]
            of_keys = zip(*lists[:keys], strict=True) if keys else repeat(())
            # The values of no keys are endless.
            for key, *row in zip(of_keys, *lists[keys:], strict=False):
                yield TimedRow(key, *row)


def _values(session: LateSession) -> tuple[Any, ...]:
    entries = [
        {"day": day, "stream": of, "batch": newest, "rows": count}
        for (day, of), (count, newest) in session.late.items()
    ]
    return (*session.key, session.start, session.first_late, session.end, entries)

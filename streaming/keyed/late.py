"""Late rows of a keyed function in order `event`, which are a read, and the activity sessions that have some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import reduce
from itertools import islice, repeat
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, MICROSECOND, STAMP, literal, python_values
from streaming.declare import Keyed
from streaming.keyed.frame import is_on_time
from streaming.keyed.schemas import key_schema, spark_schema
from streaming.keyed.tasks import STREAM, TIME, key_column
from streaming.lake import Lake
from streaming.log import read_log, valid
from streaming.spark import lenient_session

_IS_LATE = "_is_late"
START, FIRST_LATE, END, LATE_ROWS = "_start", "_first_late", "_end", "_late_rows"
"""Columns of a session: when it begins, its first late row, when it has ended; per day and stream, what came late."""

_LATE_ENTRY = pa.struct([("day", pa.int32()), ("stream", pa.int32()), ("batch", pa.int64()), ("rows", pa.int64())])
"""Late rows of a session: their day since the epoch, their stream, their newest batch, and how many they are."""

_TIME = pa.timestamp("us", "UTC")
_DAY = timedelta(days=1) // MICROSECOND
_SESSIONS_AT_ONCE = 10_000


def logs_of(spark: SparkSession, lake: Lake, keyed: Keyed) -> dict[str, DataFrame]:
    """The valid rows of the logs whose rows the function is called for, by stream."""
    session = spark if keyed.condition is None else lenient_session(spark)
    return {stream.name: valid(read_log(session, lake, stream)) for stream in keyed.streams}


def late_rows(keyed: Keyed, logs: Mapping[str, DataFrame]) -> DataFrame:
    """The late rows of the `logs`, by stream: `_stream`, `_at`, `_watermark`, `_batch`, and all streams' columns."""
    parts = [
        logs[stream.name]
        .where(~is_on_time(stream))
        .select(
            F.lit(stream.name).alias("_stream"),
            F.col(f"`{stream.event_time}`").alias(AT),
            *(STAMP, BATCH),
            *(f"`{name}`" for name in stream.columns),
        )
        for stream in keyed.streams
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


def passed(
    keyed: Keyed, logs: Mapping[str, DataFrame], through: Mapping[str, int], before: datetime | None
) -> dict[str, DataFrame]:
    """The rows of the `logs` earlier than `before`, late or not, of the batches up to `through`, all by stream.

    None are where no clock has begun, so that there is no `before`.
    """
    return {
        stream.name: logs[stream.name].where(
            (F.col(BATCH) <= through[stream.name]) & (F.col(f"`{stream.event_time}`") < literal(before))
        )
        for stream in keyed.streams
    }


def sessions_with_late_rows(keyed: Keyed, rows: Mapping[str, DataFrame]) -> DataFrame:
    """The activity sessions of these `rows`, by stream, that have late ones: the columns of `_LateSessionsOf`."""
    assert keyed.idle_micros is not None
    names = [key_column(place) for place in range(len(keyed.by))]
    timed = reduce(DataFrame.unionByName, [_timed(keyed, place, rows) for place in range(len(keyed.streams))])
    if names:
        late = [f"_late{name}" for name in names]
        with_late = timed.where(_IS_LATE).select(*(F.col(n).alias(a) for n, a in zip(names, late, strict=True)))
        same = [F.col(name).eqNullSafe(F.col(other)) for name, other in zip(names, late, strict=True)]
        timed = timed.join(with_late.distinct(), reduce(Column.__and__, same), "left_semi").repartition(*names)
    else:
        timed = timed.repartition(1)
    keys = key_schema(keyed, rows[keyed.streams[0].name])
    task = _LateSessionsOf(keyed.idle_micros, keys)
    ordered = timed.sortWithinPartitions(*names, TIME).select(*names, TIME, _IS_LATE, STREAM, BATCH)
    return ordered.mapInArrow(task, spark_schema(task.schema, partitioned=False))


def _timed(keyed: Keyed, place: int, rows: Mapping[str, DataFrame]) -> DataFrame:
    stream = keyed.streams[place]
    return rows[stream.name].select(
        *(F.col(f"`{name}`").alias(key_column(each)) for each, name in enumerate(keyed.by)),
        F.col(f"`{stream.event_time}`").alias(TIME),
        (~is_on_time(stream)).alias(_IS_LATE),
        F.lit(place).alias(STREAM),
        BATCH,
    )


class TimedRow(NamedTuple):
    """A row reduced to its key, its event time, whether it is late, its stream's place, and its batch."""

    key: tuple[Any, ...]
    at: int
    is_late: bool
    of: int = 0
    batch: int = 0


@dataclass
class _LateSession:
    """A session of a key with late rows, in microseconds: those of its rows are in [start, end), `idle` before `end`.

    `late`: by day since the epoch and place of the stream, how many rows came late, and the newest batch of them.
    """

    key: tuple[Any, ...]
    start: int
    first_late: int
    end: int
    late: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def replaces(self, at: int) -> bool:
        """True if the results of this time are different with the late rows than without them."""
        return self.first_late <= at < self.end


def late_sessions(idle: int, rows: Iterable[TimedRow]) -> Iterator[_LateSession]:
    """The sessions with late rows, of rows sorted by key and time."""
    key: tuple[Any, ...] | None = None
    start = last = 0
    session: _LateSession | None = None
    for row in rows:
        if row.key != key or row.at - last >= idle:
            if session is not None:
                yield session
            key, start, session = row.key, row.at, None
        last = row.at
        if row.is_late:
            session = session or _LateSession(row.key, start, row.at, row.at)
            place = (row.at // _DAY, row.of)
            count, newest = session.late.get(place, (0, row.batch))
            session.late[place] = (count + 1, max(newest, row.batch))
        if session is not None:
            session.end = row.at + idle
    if session is not None:
        yield session


@dataclass(frozen=True)
class _LateSessionsOf:
    """The sessions with late rows in a Spark partition, whose columns are the keys and then those of a `TimedRow`.

    `keys` is the schema of the key columns.
    """

    idle: int
    keys: pa.Schema

    @property
    def schema(self) -> pa.Schema:
        """The columns of what it gives: keys, the bounds, and what came late."""
        bounds = ((name, _TIME) for name in (START, FIRST_LATE, END))
        return pa.schema([*self.keys, *(pa.field(*each) for each in bounds), (LATE_ROWS, pa.list_(_LATE_ENTRY))])

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


def _values(session: _LateSession) -> tuple[Any, ...]:
    entries = [
        {"day": day, "stream": of, "batch": newest, "rows": count}
        for (day, of), (count, newest) in session.late.items()
    ]
    return (*session.key, session.start, session.first_late, session.end, entries)

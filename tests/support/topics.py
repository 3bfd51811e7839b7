"""A stream of JSON rows from a topic of the test broker, and what came of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg, log
from streaming.clocks import Clock
from streaming.sources import Source
from tests.support.runs import tuples


def piped(source: Source, *, clock: Clock | None = None, **changes: Any) -> Pipeline:
    """A pipeline that counts the rows of a source by hour; `changes` are those of its stream."""
    declared: dict[str, Any] = {
        "name": "events",
        "source": source,
        "format": Json("id string, at timestamp, value bigint"),
        "event_time": "at",
        "clock": clock or BoundedOutOfOrderness("1 hour"),
    }
    stream = Stream(**declared | changes)
    return Pipeline(stream, (Windowed("by_hour", stream, Tumbling("1 hour"), {"events": agg.count()}),))


def event(value: int, second: float = 0) -> str:
    """One row, `second` seconds after midnight."""
    minutes, seconds = divmod(second, 60)
    hours, minutes = divmod(minutes, 60)
    return f'{{"id": "a", "at": "2026-01-01T{hours:02.0f}:{minutes:02.0f}:{seconds:06.3f}Z", "value": {value}}}'


def values(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[int]:
    """The values of the valid rows of its log, sorted."""
    rows = log.valid(log.read_log(spark, lake, pipeline.stream))
    return sorted(value for (value,) in tuples(rows, "value"))

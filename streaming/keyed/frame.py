"""What a step folds: the state and the rows that are due, in one frame, in the order of the fold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.declare import Keyed, Stream
from streaming.keyed.partition import (
    BATCH,
    DUE,
    MATCHING,
    ORIGIN,
    STAMP,
    STREAM,
    TIME,
    TIMERS,
    key_column,
    state_column,
    value_column,
)
from streaming.keyed.rules import PinnedRules
from streaming.log import LogFiles


@dataclass(frozen=True)
class Range:
    """What a step follows of each log, by stream: the batches in (after, through].

    Meanwhile the watermark, of several streams the least of theirs, goes from `since` to `until`.
    """

    after: Mapping[str, int]
    through: Mapping[str, int]
    since: datetime | None
    until: datetime | None


def rows_due(spark: SparkSession, keyed: Keyed, stream: Stream, log: LogFiles, within: Range) -> DataFrame:
    """The valid rows of a log that a step handles.

    Order `arrival`: those of its batches. Order `event`: those on time that the clock passes on the way, whichever
    batch brought them. A row of a later batch is never one of them, because its stamp is not below `until`.
    """
    through = within.through[stream.name]
    if keyed.order == "arrival":
        return log.with_batches(spark, within.after[stream.name], through)
    if within.until is None:
        return log.none(spark)
    return log.with_times(spark, within.since, within.until, through).where(is_on_time(stream))


def is_on_time(stream: Stream) -> Column:
    """Whether a row of the log came before the clock of its stream had passed it."""
    stamp = F.col("_watermark")
    return stamp.isNull() | (F.col(stream.event_time) >= stamp)


def in_order(
    keyed: Keyed, state: DataFrame, rows: Mapping[str, DataFrame], rules: PinnedRules | None = None
) -> DataFrame:
    """State and the rows of each stream, all of a key in one partition, its state first and then its rows in order.

    Of `rules` with conditions, each row has those that are true of it.
    """
    if keyed.condition is not None and rules is not None:
        name = keyed.streams[0].name
        rows = {name: rows[name].withColumn(MATCHING, _matching(rules.history.of_all(keyed.condition)))}
    keys = [key_column(place) for place in range(len(keyed.by))]
    fields = [f"`{name}`" for name in keyed.state_schema.names]
    kept = [state_column(place) for place in range(len(fields))]
    named = [F.col(f"`{name}`").alias(key) for name, key in zip(keyed.by, keys, strict=True)]
    fields_of = [F.col(field).alias(name) for field, name in zip(fields, kept, strict=True)]
    new = [_rows_of(keyed, place, rows[stream.name]) for place, stream in enumerate(keyed.streams)]
    parts = [state.select(*named, *fields_of, TIMERS, DUE), *new]
    all_rows = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)
    time = [F.col(TIME).asc_nulls_first()] if keyed.order == "event" else []
    placed = all_rows.repartition(*keys) if keys else all_rows.repartition(1)
    origins = [f"{ORIGIN}{place}" for place in range(len(new))]
    within_time = [F.col(name).asc_nulls_first() for name in (STREAM, BATCH)]
    ordered = placed.sortWithinPartitions(*keys, *time, *within_time, *origins)
    columns = (*keys, *kept, TIMERS, DUE, TIME, STAMP, BATCH, STREAM, *_matched(keyed))
    values = [name for place in range(len(new)) for name in _values(keyed, place)]
    return ordered.select(*columns, *values)


def _rows_of(keyed: Keyed, place: int, rows: DataFrame) -> DataFrame:
    """The rows of one stream: keys, what orders them, and the stream's other columns under names of their own."""
    stream = keyed.streams[place]
    return rows.select(
        *(F.col(f"`{name}`").alias(key_column(each)) for each, name in enumerate(keyed.by)),
        F.col(stream.event_time).alias(TIME),
        F.col("_watermark").alias(STAMP),
        BATCH,
        F.lit(place).alias(STREAM),
        F.col(ORIGIN).alias(f"{ORIGIN}{place}"),
        *_matched(keyed),
        *(F.col(f"`{column}`").alias(name) for name, column in _values(keyed, place).items()),
    )


def _matched(keyed: Keyed) -> tuple[str, ...]:
    return () if keyed.condition is None else (MATCHING,)


def _matching(conditions: Sequence[str]) -> Column:
    """The places of the conditions that are true of a row."""
    if not conditions:
        return F.array().cast("array<int>")
    true = ", ".join(f"if(({condition}\n), {place}, null)" for place, condition in enumerate(conditions))
    return F.expr(f"array_except(array({true}), array(cast(null as int)))")


def _values(keyed: Keyed, place: int) -> dict[str, str]:
    """The columns of a stream that are no keys, by the names under which they go into the fold."""
    others = (name for name in keyed.streams[place].columns if name not in keyed.by)
    return {value_column(place, each): name for each, name in enumerate(others)}

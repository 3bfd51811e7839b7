"""Late rows of a keyed function in order `event`, which are a read, and the activity sessions that have some."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, STAMP, literal
from streaming.declare import Keyed
from streaming.keyed.frame import is_on_time
from streaming.keyed.late_sessions import LateSessionsOf
from streaming.keyed.partition import STREAM, TIME, key_column
from streaming.keyed.schemas import key_schema, spark_schema
from streaming.lake import Lake
from streaming.log import read_log, valid
from streaming.spark import lenient_session

_IS_LATE = "_is_late"


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
    """The activity sessions of these `rows`, by stream, that have late ones: the columns of `LateSessionsOf`."""
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
    task = LateSessionsOf(keyed.idle_micros, keys)
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

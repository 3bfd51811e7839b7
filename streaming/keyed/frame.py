"""What a step folds: the state and the rows that are due, in one frame, in the order of the fold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.declare import Keyed
from streaming.keyed.partition import BATCH, DUE, ORIGIN, STAMP, TIME, TIMERS, key_column, state_column
from streaming.log import LogFiles


@dataclass(frozen=True)
class Range:
    """What a step follows: the batches in (after, through], while the watermark goes from `since` to `until`."""

    after: int
    through: int
    since: datetime | None
    until: datetime | None


def rows_due(spark: SparkSession, keyed: Keyed, log: LogFiles, within: Range) -> DataFrame:
    """The valid rows of the log that a step handles.

    Order `arrival`: those of its batches. Order `event`: those on time that the clock passes on the way, whichever
    batch brought them. A row of a later batch is never one of them, because its stamp is not below `until`.
    """
    if keyed.order == "arrival":
        return log.with_batches(spark, within.after, within.through)
    if within.until is None:
        return log.none(spark)
    return log.with_times(spark, within.since, within.until, within.through).where(is_on_time(keyed))


def is_on_time(keyed: Keyed) -> Column:
    """Whether a row of the log came before the clock had passed it."""
    stamp = F.col("_watermark")
    return stamp.isNull() | (F.col(keyed.of.event_time) >= stamp)


def in_order(keyed: Keyed, state: DataFrame, rows: DataFrame) -> DataFrame:
    """State and rows, all of a key in one partition, its state first and then its rows in their order."""
    keys = [key_column(place) for place in range(len(keyed.by))]
    named = [F.col(f"`{name}`").alias(key) for name, key in zip(keyed.by, keys, strict=True)]
    fields = [f"`{name}`" for name in keyed.state_schema.names]
    kept = [state_column(place) for place in range(len(fields))]
    others = [f"`{name}`" for name in keyed.of.columns if name not in keyed.by]
    new = rows.select(
        *named,
        F.col(keyed.of.event_time).alias(TIME),
        F.col("_watermark").alias(STAMP),
        BATCH,
        ORIGIN,
        *others,
    )
    fields_of = [F.col(field).alias(name) for field, name in zip(fields, kept, strict=True)]
    both = state.select(*named, *fields_of, TIMERS, DUE).unionByName(new, allowMissingColumns=True)
    time = [F.col(TIME).asc_nulls_first()] if keyed.order == "event" else []
    placed = both.repartition(*keys) if keys else both.repartition(1)
    ordered = placed.sortWithinPartitions(*keys, *time, F.col(BATCH).asc_nulls_first(), ORIGIN)
    columns = (*keys, *kept, TIMERS, DUE, TIME, STAMP, BATCH)
    return ordered.select(*columns, *others)

"""What a commit of the log counts of its rows, as aggregates of one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.base import from_micros, optional_instant
from streaming.declare import Stream
from streaming.log.unknown import unknown_fields
from streaming.spark import guarded, holds

SHARES_BEFORE = (0.5, 0.05, 0.01)
"""Of a batch, the share of rows that the source had before each of `Batch.source_times`.

Less the instant of the commit, these are the median, 95th and 99th percentile of latency: what came first waited
longest.
"""
_BESIDE = "_day"
"""A column that all stamped rows have, as `guarded` asks for."""


def _number_of(condition: Column) -> Column:
    # `count_if` makes Spark write every row twice more, as it names what it counts.
    return F.count(F.when(condition, F.lit(1)))


def _of_row(count: Column) -> Column:
    return guarded(count, _BESIDE)["value"]


def _greatest(stream: Stream) -> Column:
    """The greatest event time of the valid rows that move the clock, in microseconds; null where there is none."""
    valid, moved_by = F.col("_day").isNotNull(), stream.clock.moved_by
    moves = valid if moved_by is None else valid & holds(F.expr(moved_by), _BESIDE)
    return F.max(F.when(moves, F.unix_micros(stream.event_time))).alias("greatest")


def count_partitions(rows: DataFrame, stream: Stream) -> tuple[dict[str, int], dict[str, datetime | None]]:
    """Rows per source partition; and the greatest event time that moves the clock, null where none does.

    The second has the partitions with valid rows.
    """
    partition = stream.source.partition_of(F.col("_origin")).alias("partition")
    aggregates = (F.count(F.lit(1)).alias("rows"), F.count("_day").alias("valid"), _greatest(stream))
    partitions = rows.groupBy(partition).agg(*aggregates).collect()
    greatest = {row["partition"]: optional_instant(row["greatest"]) for row in partitions if row["valid"]}
    return {row["partition"]: row["rows"] for row in partitions}, greatest


def optional_instants(micros: Sequence[float] | None) -> tuple[datetime, ...] | None:
    """Microseconds since the epoch as instants."""
    return None if micros is None else tuple(from_micros(round(entry)) for entry in micros)


@dataclass(frozen=True)
class OperatorCounts:
    """What the commit of a batch counts for one operator, as columns over stamped rows; both are null for other rows.

    `late`: how many late pairs a row makes; `unassigned`: whether it is in no window; `by`: the same text for
    declarations that count the same. A row for which the operator's expressions cannot be computed counts as neither:
    that is for the operator to tell, and must not keep the row from the log.
    """

    late: Column
    unassigned: Column
    by: str


def summary_columns(stream: Stream, counts: Mapping[str, OperatorCounts]) -> list[Column]:
    """What a commit says of its stamped rows, as aggregates.

    `rows`, `rejected`, `greatest`, `source_times` (see `SHARES_BEFORE`), `unknown`, and for each operator in `counts`
    `late_<operator>` and `unassigned_<operator>`.
    """
    valid = F.col("_day").isNotNull()
    source_time = F.unix_micros(stream.source.time_of(F.col("_origin")))
    return [
        F.count(F.lit(1)).alias("rows"),
        _number_of(~valid).alias("rejected"),
        _greatest(stream),
        F.percentile(source_time, F.array(*(F.lit(share) for share in SHARES_BEFORE))).alias("source_times"),
        unknown_fields(),
        *(F.coalesce(F.sum(_of_row(each.late)), F.lit(0)).alias(f"late_{name}") for name, each in counts.items()),
        *(_number_of(_of_row(each.unassigned)).alias(f"unassigned_{name}") for name, each in counts.items()),
    ]

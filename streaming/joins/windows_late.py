"""Late rows of either side are a read of the logs: the pairs whose window was closed by their own log's clock."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import reduce
from operator import add

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW
from streaming.declare import Stream, TwoSided
from streaming.joins.windows_rows import ROWS, SIDE, is_counted, pairs
from streaming.lake import Lake
from streaming.log import OperatorCounts, read_log


def late_pairs(operator: TwoSided, rows: Mapping[str, DataFrame]) -> DataFrame:
    """One row per late (row, window) pair: keys, window, `_side`, `_watermark`, `_batch`, and the row in either side.

    `rows` are batch reads of the logs, by stream.
    """
    shown = (F.col(ROWS[side.name]).dropFields("_event_time", "_order").alias(side.name) for side in operator.sides)
    return (
        pairs(operator, rows)
        .where("_late")
        .select(
            *operator.by,
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            SIDE,
            "_watermark",
            "_batch",
            *shown,
        )
    )


def logs_of(spark: SparkSession, lake: Lake, operator: TwoSided) -> dict[str, DataFrame]:
    """The rows of its logs as batch reads, by stream.

    Raises:
        LogError: one of them has no log yet.
    """
    return {stream.name: read_log(spark, lake, stream) for stream in operator.reads}


def counts(operator: TwoSided, stream: Stream) -> OperatorCounts:
    """The counts in each commit of the stream's log: its late pairs, on both sides where it is both."""
    window, time = operator.window, F.col(f"`{stream.event_time}`")
    sides = [side for side in operator.sides if side.stream == stream]
    counted = [is_counted(side, operator) for side in sides]
    late = reduce(add, (F.when(each, window.late_windows(time, F.col("_watermark"))) for each in counted))
    unassigned = F.when(counted[0], window.has_no_window(time))
    return OperatorCounts(late=late, unassigned=unassigned, by=counted_by(operator, stream))


def counted_by(operator: TwoSided, stream: Stream) -> str:
    """A short text that is the same for declarations by which the same pairs of the stream's log are late."""
    sides = sum(side.stream == stream for side in operator.sides)
    rules = f"{stream.event_time} {operator.window.fingerprint} {sides}"
    if operator.diverts and operator.window.expressions:
        rules += " but for rows without a window"
    return hashlib.sha256(rules.encode()).hexdigest()[:8]

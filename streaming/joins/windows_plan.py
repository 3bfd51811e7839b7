"""Which days need a correction: those with late rows, on either side, that their correction has not counted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, from_micros, literal
from streaming.declare import CORRECTIONS, TwoSided
from streaming.joins.windows_late import logs_of
from streaming.joins.windows_rows import LATE, SIDE, possible_pairs
from streaming.lake import Lake
from streaming.operators import Corrected, PendingDay, Progress, open_side, whole_since
from streaming.tables import delta
from streaming.views import days_of_session, kind_of


def is_closed(operator: TwoSided, at: Progress) -> Column:
    """True where the joint clock has passed the end of a pair's or group's window."""
    if at.watermark is None:
        return F.lit(False)
    return F.col(f"{WINDOW}.end") <= literal(operator.window.closed_by(at.watermark))


def until(logs: Mapping[str, DataFrame], at: Progress) -> dict[str, DataFrame]:
    """The rows of the `logs`, by stream, of the batches up to `at`."""
    return {name: rows.where(F.col("_batch") <= at.through[name]) for name, rows in logs.items()}


def plan(
    spark: SparkSession,
    lake: Lake,
    operator: TwoSided,
    log_versions: Mapping[str, int] | None = None,
    corrections_version: int | None = None,
) -> list[PendingDay]:
    """The days that need a correction, oldest first; none while one of the streams has no log yet.

    The versions, of logs by stream, pin what is known of late rows, and as corrected.
    """
    if not operator.corrected or not all(delta.exists(lake.log(stream)) for stream in operator.reads):
        return []
    at = Progress.at_heads(lake, operator, log_versions)
    corrections = open_side(lake, operator, CORRECTIONS, corrections_version)
    since = whole_since(lake, operator)
    waiting = pending(logs_of(spark, lake, operator), operator, at, corrections)
    return [entry for entry in waiting if since is None or entry.day >= since]


def pending(
    logs: Mapping[str, DataFrame], operator: TwoSided, at: Progress, corrections: DeltaTable | None
) -> list[PendingDay]:
    """The days that need a correction by the `logs` up to `at`, given the open table of corrections.

    A day waits if late rows are newer than its correction, or if the joint clock has passed by now, and had not then,
    the end of a window that has some: what is late by its own clock may be early by the joint one. Batch numbers are
    those of the log that is further behind.
    """
    entries = []
    for row in late_days(until(logs, at), operator, at).collect():
        corrected = Corrected.of(operator, row["day"], corrections)
        newest = newest_late(operator, row.asDict())
        if corrected.has_begun and _has_closed(operator, row["closed"], corrected):
            newest = dict(at.through)
        entry = corrected.pending(row["day"], row["late_pairs"], newest)
        if entry is not None:
            entries.append(entry)
    return entries


def late_days(logs: Mapping[str, DataFrame], operator: TwoSided, at: Progress) -> DataFrame:
    """Days with late pairs: how many, the newest batch of each side that brought one, the latest end that is closed.

    Windows that are open wait until they are closed; but sessions, because a late row may have joined one still open
    with one that was published.
    """
    merges, closed = kind_of(operator).merges, is_closed(operator, at)
    newest = {
        side.name: F.max(F.when(F.col(LATE) & (F.col(SIDE) == side.name), F.col("_batch"))) for side in operator.sides
    }
    aggregates = [F.count_if(LATE).alias("late_pairs"), *(column.alias(name) for name, column in newest.items())]
    of = possible_pairs(operator, logs)
    windows = kind_of(operator).group(of if merges else of.where(LATE), operator.by, aggregates)
    late = windows.where((F.col("late_pairs") > 0) & (F.lit(True) if merges else closed))
    days = days_of_session() if merges else F.to_date(f"{WINDOW}.start")
    ends = F.when(closed, F.unix_micros(f"{WINDOW}.end")).alias("closed")
    return (
        late.select(days.alias("day"), "late_pairs", *newest, ends)
        .groupBy("day")
        .agg(F.sum("late_pairs").alias("late_pairs"), *(F.max(name).alias(name) for name in (*newest, "closed")))
        .orderBy("day")
    )


def newest_late(operator: TwoSided, row: Mapping[str, Any]) -> dict[str, int]:
    """The newest batch with late pairs of a day, of each log that brought some, by stream; `row` has it for each side.

    A stream that comes in on both sides, by other keys, may have brought some on one of them only.
    """
    newest: dict[str, int] = {}
    for side in operator.sides:
        if row[side.name] is not None:
            newest[side.stream.name] = max(row[side.name], newest.get(side.stream.name, row[side.name]))
    return newest


def _has_closed(operator: TwoSided, latest_end: int | None, corrected: Corrected) -> bool:
    """True if the latest end of a closed window was not closed when the day was corrected."""
    if latest_end is None:
        return False
    then = corrected.watermark
    return then is None or from_micros(latest_end) > operator.window.closed_by(then)

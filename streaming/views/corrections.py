"""Corrections: the windows of a day that have late pairs, recomputed from all their rows and put in place whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial, reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY, RETRACTED, WINDOW, OperatorError, date_literal, from_micros, literal
from streaming.declare import CORRECTIONS, OverWindows, Stream, Windowed
from streaming.lake import Lake
from streaming.log import read_log
from streaming.operators import (
    Corrected,
    PendingDay,
    Progress,
    can_be_compared,
    check_declaration,
    check_whole,
    corrected_numbers,
    create_table,
    each_day,
    generation_of,
    open_side,
    same_generation,
    whole_since,
)
from streaming.tables import delta
from streaming.views.computation import computation_of, is_closed, until
from streaming.views.results import in_lateness, kind_of, last_end, retract_others

_LATE_ROWS = "_late_rows"


def logs_of(
    spark: SparkSession, lake: Lake, operator: OverWindows, versions: Mapping[str, int] | None = None
) -> dict[str, DataFrame]:
    """The rows of its logs as batch reads, by stream, at Delta `versions` or the newest.

    Raises:
        LogError: one of them has no log yet.
    """
    at = versions or {}
    return {stream.name: read_log(spark, lake, stream, at.get(stream.name)) for stream in operator.reads}


def plan(
    spark: SparkSession,
    lake: Lake,
    operator: OverWindows,
    log_versions: Mapping[str, int] | None = None,
    corrections_version: int | None = None,
) -> list[PendingDay]:
    """The days that need a correction, oldest first; none while one of two streams has no log yet.

    The versions, of logs by stream, pin what is known of late pairs, and as corrected. A day with late rows for which
    it cannot be computed whether they count is one of them: its correction tells why. Pairs that are dropped, or that
    the stream process corrects by itself, wait for nobody, and neither do days of which rows were dropped by the
    retention of a log.

    Raises:
        LogError: the one stream has no log yet.
    """
    there = all(delta.exists(lake.log(stream)) for stream in operator.reads)
    if not operator.corrected or (operator.joins_clocks and not there):
        return []
    at = Progress.at_heads(lake, operator, log_versions)
    corrections = open_side(lake, operator, CORRECTIONS, corrections_version)
    since = whole_since(lake, operator)
    waiting = pending(logs_of(spark, lake, operator, log_versions), operator, at, corrections)
    return [entry for entry in waiting if since is None or entry.day >= since]


def pending(
    logs: Mapping[str, DataFrame], operator: OverWindows, at: Progress, corrections: DeltaTable | None
) -> list[PendingDay]:
    """The days that need a correction by the `logs` up to `at`, given the open table of corrections.

    A day waits if late pairs are newer than its correction, or if a window that has some was open when the day was
    corrected, and has closed since. Batch numbers are those of the log that is further behind.
    """
    ended = ended_since(operator, at, corrections)
    entries = []
    for row in late_days(until(logs, at), operator, at).collect():
        day, corrected = row["day"], Corrected.of(operator, row["day"], corrections)
        # A stream that comes in on both sides, by other keys, may have brought late pairs on one of them only.
        newest = {name: batch for name, batch in row["newest"].asDict().items() if batch is not None}
        if day in ended or (operator.joins_clocks and _has_closed(operator, row["closed"], corrected)):
            newest = dict(at.through)
        entry = corrected.pending(day, row["late_pairs"], newest)
        if entry is not None:
            entries.append(entry)
    return entries


def late_days(logs: Mapping[str, DataFrame], operator: OverWindows, at: Progress) -> DataFrame:
    """Days with late pairs: how many, the `newest` batch of each log that brought one, the latest end that is closed.

    Windows that are open wait until they are closed, as what is late by its own clock may be early by the joint one;
    but sessions, because a late row may have joined one still open with one that was published. It may also move the
    start of a session to an earlier day, so a session counts on each of its days.
    """
    computation, late, end = computation_of(operator), F.col("_late"), F.col(f"{WINDOW}.end")
    of, closed = computation.possible_pairs(logs), is_closed(operator, at)
    newest = {
        f"_newest_{place}": F.when(late & computation.is_of(stream), F.col(BATCH))
        for place, stream in enumerate(operator.reads)
    }
    if kind_of(operator).merges:
        counted = {"late_pairs": F.count_if(late), "_watermark": F.max(F.when(late, F.col("_watermark")))}
        counted |= {name: F.max(batch) for name, batch in newest.items()}
        groups = kind_of(operator).group(of, operator.by, [column.alias(name) for name, column in counted.items()])
        windows, days = groups.where("late_pairs > 0"), days_of_session()
    else:
        columns = (batch.alias(name) for name, batch in newest.items())
        windows = of.where(late & closed).select(WINDOW, "_watermark", F.lit(1).alias("late_pairs"), *columns)
        days = F.to_date(f"{WINDOW}.start")
    if operator.updated:
        # An update counts all rows so far, also those that came too late for one of their own.
        windows = windows.where(~in_lateness(operator, end, F.col("_watermark")))
    by_stream = [F.max(name).alias(stream.name) for name, stream in zip(newest, operator.reads, strict=True)]
    newest_batches = F.struct(*by_stream).alias("newest")
    return (
        windows.select(days.alias("day"), "late_pairs", *newest, F.when(closed, F.unix_micros(end)).alias("closed"))
        .groupBy("day")
        .agg(F.sum("late_pairs").alias("late_pairs"), newest_batches, F.max("closed").alias("closed"))
        .orderBy("day")
    )


def days_of_session() -> Column:
    """A row for each day that a session is part of."""
    return F.explode(F.sequence(F.to_date(f"{WINDOW}.start"), F.to_date(f"{WINDOW}.end")))


def ended_since(operator: OverWindows, at: Progress, corrections: DeltaTable | None) -> set[date]:
    """Days with a session that was still open when it was corrected and has ended by the clock `at`.

    Starts no Spark. None where windows do not merge: they end when their bounds say. So it is where the stream process
    itself publishes sessions with late rows once they are closed.
    """
    if not operator.window.merging or operator.updated or corrections is None or at.watermark is None:
        return set()
    closed = operator.window.closed_by(at.watermark)
    rows = delta.contents(corrections, columns=(DAY, "window_end", RETRACTED)).to_pylist()
    return {row[DAY] for row in rows if row[RETRACTED] and row["window_end"] <= closed}


def _has_closed(operator: OverWindows, latest_end: int | None, corrected: Corrected) -> bool:
    """True if the latest end of a closed window was not closed when the day was corrected."""
    if latest_end is None or not corrected.has_begun:
        return False
    then = corrected.watermark
    return then is None or from_micros(latest_end) > operator.window.closed_by(then)


def correct(
    spark: SparkSession,
    lake: Lake,
    operator: OverWindows,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit a day; returns the corrected results per day.

    Idempotent and restartable: a day is a function of the logs up to the batches that the commit names.

    Raises:
        LogError: one of the streams has no log yet.
        OperatorError: late rows are dropped by the declaration, or rows of a day were dropped by a log's retention.
        ChangedDeclaration: it is not the one that made the tables.
        FencedError: the tables were built anew meanwhile.
        CorrectionsFailed: days for which something cannot be computed, once all others are corrected.
    """
    if not operator.corrected:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} is declared with late='drop', so nothing is corrected; declare "
            "late='correct' to have its late rows counted, they are all in the logs."
        )
    generation = generation_of(delta.open_table(lake.table(operator)))
    check_declaration(lake, operator)
    days = set(days)
    check_whole(lake, operator, days)
    # The logs last: they then hold every batch up to those that the correction is said to go through.
    at = Progress.at_heads(lake, operator)
    logs = logs_of(spark, lake, operator)

    def correct_day(day: date) -> int:
        rows = correction(_rows_of_sessions(logs, operator, day), operator, day, at)
        rows = rows.withColumn("_corrected_at", literal(now()))
        return delta.replace_days(
            rows,
            create_table(lake, operator, CORRECTIONS, rows.schema),
            [day],
            says={"through": {day.isoformat(): dict(at.through)}, "view": operator.name},
            numbers=corrected_numbers(day, at),
            fence=partial(same_generation, operator, generation),
        )

    return each_day(operator, days, correct_day, on_day)


def _rows_of_sessions(logs: Mapping[str, DataFrame], operator: OverWindows, day: date) -> Mapping[str, DataFrame]:
    """Rows up to the end of the last session of the day: what fails for a later one is not of the day."""
    if not operator.window.merging:
        return logs
    near = {name: rows.where(operator.window.rows_for_day(day)) for name, rows in logs.items()}
    end = literal(last_end(computation_of(operator).possible_pairs(near), operator, day))
    return {each.name: logs[each.name].where(F.col(f"`{each.event_time}`") <= end) for each in operator.reads}


def correction(logs: Mapping[str, DataFrame], operator: OverWindows, day: date, at: Progress) -> DataFrame:
    """The correction of one day as a pure function of the `logs`, by stream, up to `at`.

    The operator's columns, `_late_rows` (late pairs in the window), `_retracted`, the batches up to which rows are
    counted, `_day`. A retracted row has no values: it stands for results that are void, of a window for which there are
    none, or of a session that a late row has joined to one still open.
    """
    computation, known = computation_of(operator), until(logs, at)
    near = {each.name: known[each.name].where(_of_day(each, operator, day)) for each in operator.reads}
    merges, closed = kind_of(operator).merges, is_closed(operator, at)
    of_day = (F.to_date(f"{WINDOW}.start") == date_literal(day)) & (F.col(_LATE_ROWS) > 0)
    groups = computation.group(computation.pairs(near), {_LATE_ROWS: F.count_if("_late")})
    late = groups.where(of_day if merges else of_day & closed)
    results = computation.finish(late.where(closed) if merges else late, _LATE_ROWS)
    results = results.withColumn(RETRACTED, F.lit(False))
    voidable = computation.voidable(late)
    if voidable is not None:
        results = retract_others(results, voidable, operator, _LATE_ROWS)
    through = {name: F.lit(at.through[stream.name]).cast("bigint") for name, stream in operator.counted_through.items()}
    return results.withColumns(through).select(*operator.columns, _LATE_ROWS, RETRACTED, *through, DAY)


def _of_day(stream: Stream, operator: OverWindows, day: date) -> Column:
    window = operator.window
    return window.rows_for_day(day) & window.may_start_on(day, F.col(f"`{stream.event_time}`"))


def read_corrections(
    spark: SparkSession, lake: Lake, operator: OverWindows, version: int | None = None
) -> DataFrame | None:
    """The corrections as a batch frame, at one Delta `version` or the newest, or None while there is no such table.

    As of batches of the logs they are computed: those that all late rows up to them call for. Those of days that a log
    has dropped since are read: no batch brought a row of them that they had not counted.
    """
    if lake.cut is not None:
        return _called_for(spark, lake, operator)
    return _stored(spark, lake, operator, version)


def _stored(spark: SparkSession, lake: Lake, operator: OverWindows, version: int | None = None) -> DataFrame | None:
    table = open_side(lake, operator, CORRECTIONS, version)
    return None if table is None else delta.read(spark, lake.corrections(operator), table.version())


def _called_for(spark: SparkSession, lake: Lake, operator: OverWindows) -> DataFrame | None:
    if not operator.corrected:
        return None
    at, logs = Progress.at_heads(lake, operator), logs_of(spark, lake, operator)
    since = whole_since(lake, operator)
    late = [row["day"] for row in late_days(until(logs, at), operator, at).collect()]
    frames = [correction(logs, operator, day, at) for day in late if since is None or day >= since]
    stored = None if since is None else _stored(spark, lake, operator)
    if stored is not None:
        frames.append(stored.where(~can_be_compared(since)).drop("_corrected_at"))
    return reduce(DataFrame.unionByName, frames) if frames else None


def corrected_through(lake: Lake, view: Windowed, days: Iterable[date]) -> dict[date, int]:
    """Those of `days` that are corrected, each with the batch up to which its correction goes.

    The table itself keeps these numbers, so that no commit is read.
    """
    table = open_side(lake, view, CORRECTIONS)
    through = {day: Corrected.of(view, day, table).through[view.of.name] for day in days}
    return {day: batch for day, batch in through.items() if batch >= 0}

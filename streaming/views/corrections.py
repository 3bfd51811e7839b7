"""Corrections: the windows of a day that have late pairs, recomputed from all their rows and put in place whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import date, datetime
from functools import partial, reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, RETRACTED, WINDOW, FencedError, ViewError, date_literal, literal
from streaming.declare import CORRECTIONS, Windowed
from streaming.lake import Lake
from streaming.log import Batch, head, read_log
from streaming.operators import (
    PendingDay,
    can_be_compared,
    check_declaration,
    check_whole,
    create_table,
    each_day,
    generation_of,
    open_side,
    whole_since,
)
from streaming.tables import delta
from streaming.views.kinds import kind_of
from streaming.views.late import in_lateness
from streaming.views.results import finish, group, last_end, pairs, possible_pairs, retract_others


def plan(
    spark: SparkSession,
    lake: Lake,
    view: Windowed,
    log_version: int | None = None,
    corrections_version: int | None = None,
) -> list[PendingDay]:
    """The days that need a correction, oldest first; the versions pin what is known of late pairs, and as corrected.

    A day with late rows for which it cannot be computed whether they count is one of them: its correction tells why.
    Pairs that the view drops, or that the stream process corrects by itself, wait for nobody, and neither do days of
    which rows were dropped by the retention of the log.
    """
    if not view.corrected:
        return []
    log = read_log(spark, lake, view.of, log_version)
    days = _changed_sessions(log, view) if kind_of(view).merges else _late_days(log, view)
    # A correction is out of date as soon as a session that was open in it has ended.
    ended = ended_since(lake, view, log_version, corrections_version)
    late = (
        days.groupBy("day")
        .agg(F.sum("late_pairs").alias("late_pairs"), F.max("newest_batch").alias("newest_batch"))
        .orderBy("day")
        .collect()
    )
    through = corrected_through(lake, view, (row["day"] for row in late), corrections_version)
    backlog = [
        PendingDay(row["day"], row["late_pairs"], ended.get(row["day"], row["newest_batch"]), through.get(row["day"]))
        for row in late
    ]
    since = whole_since(lake, view)
    return [
        entry
        for entry in backlog
        if (entry.through_batch is None or entry.newest_batch > entry.through_batch)
        and (since is None or entry.day >= since)
    ]


def _late_days(log: DataFrame, view: Windowed) -> DataFrame:
    late = possible_pairs(log, view).where("_late")
    if view.allowed_lateness is not None:
        late = late.where(~in_lateness(view, F.col(f"{WINDOW}.end"), F.col("_watermark")))
    return late.groupBy(F.to_date(f"{WINDOW}.start").alias("day")).agg(
        F.count(F.lit(1)).alias("late_pairs"), F.max("_batch").alias("newest_batch")
    )


def _changed_sessions(log: DataFrame, view: Windowed) -> DataFrame:
    """Late pairs per day of the whole session they belong to: a late row may move its start to an earlier day."""
    sessions = group(
        possible_pairs(log, view),
        view,
        extra={
            "_late_pairs": F.count_if("_late"),
            "_newest_batch": F.max(F.when(F.col("_late"), F.col("_batch"))),
            "_stamp": F.max(F.when(F.col("_late"), F.col("_watermark"))),
        },
    ).where("_late_pairs > 0")
    if view.allowed_lateness is not None:
        # An update counts all rows so far, also those that came too late for one of their own.
        sessions = sessions.where(~in_lateness(view, F.col(f"{WINDOW}.end"), F.col("_stamp")))
    return sessions.select(
        days_of_session().alias("day"),
        F.col("_late_pairs").alias("late_pairs"),
        F.col("_newest_batch").alias("newest_batch"),
    )


def days_of_session() -> Column:
    """A row for each day that a session is part of."""
    return F.explode(F.sequence(F.to_date(f"{WINDOW}.start"), F.to_date(f"{WINDOW}.end")))


def ended_since(
    lake: Lake, view: Windowed, log_version: int | None = None, corrections_version: int | None = None
) -> dict[date, int]:
    """Days with a session that was still open when it was corrected and has ended since, by the newest batch.

    Starts no Spark. Empty where windows do not merge: they end when their bounds say. So it is where the stream process
    itself publishes sessions with late rows once they are closed.
    """
    merging = view.window.merging and not view.updated
    corrections = open_side(lake, view, CORRECTIONS, corrections_version) if merging else None
    newest = head(lake, view.of, log_version)
    if corrections is None or newest is None or newest.after.watermark is None:
        return {}
    closed = view.window.closed_by(newest.after.watermark)
    rows = delta.contents(corrections, columns=("_day", "window_end", "_retracted")).to_pylist()
    days = (row["_day"] for row in rows if row["_retracted"] and row["window_end"] <= closed)
    return dict.fromkeys(days, newest.number)


def correct(
    spark: SparkSession,
    lake: Lake,
    view: Windowed,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit a day; returns the corrected windows per day.

    Idempotent and restartable: a day is a function of the log up to the batch stored as `_through_batch`.

    Raises:
        LogError: nothing has been ingested yet.
        ViewError: the view drops late pairs by its declaration, or rows of a day were dropped by the log's retention.
        ChangedDeclaration: the view is not the one that made its tables.
        FencedError: the view was built anew meanwhile.
        CorrectionsFailed: days for which something cannot be computed, once all others are corrected.
    """
    if not view.corrected:
        raise ViewError(
            f"view {view.name!r} is declared with late='drop', so nothing is corrected; declare late='correct' to have "
            "its late pairs counted, they are all in the log."
        )
    generation = generation_of(delta.open_table(lake.first(view)))
    check_declaration(lake, view)
    days = set(days)
    check_whole(lake, view, days)
    # The log last: it then holds every batch up to the one that the correction is said to go through.
    newest = head(lake, view.of)
    log = read_log(spark, lake, view.of)
    assert newest is not None

    def correct_day(day: date) -> int:
        rows = correction(_rows_of_sessions(log, view, day), view, day, newest)
        rows = rows.withColumn("_corrected_at", literal(now()))
        return delta.replace_days(
            rows,
            create_table(lake, view, CORRECTIONS, rows.schema),
            [day],
            says={"through": {day.isoformat(): newest.number}, "view": view.name},
            numbers={_corrected_number(day): newest.number},
            fence=partial(_fence, view, generation),
        )

    return each_day(view, days, correct_day, on_day)


def _rows_of_sessions(log: DataFrame, view: Windowed, day: date) -> DataFrame:
    """The rows of the log up to the end of the last session of the day: one that fails later is not of the day."""
    if not view.window.merging:
        return log
    near = possible_pairs(log.where(view.window.rows_for_day(day)), view)
    return log.where(F.col(f"`{view.of.event_time}`") <= literal(last_end(near, view, day)))


def _fence(view: Windowed, generation: int, table: DeltaTable) -> None:
    if generation_of(table) != generation:
        raise FencedError(
            f"view {view.name!r} was built anew while it was corrected, and what was computed is of the old one; run "
            f"`tidemark correct {view.folder}` again."
        )


def correction(log: DataFrame, view: Windowed, day: date, through: Batch) -> DataFrame:
    """The correction of one day as a pure function of the log up to batch `through`.

    The view's columns, `_late_rows` (late pairs in the window), `_retracted`, `_through_batch`, `_day`. A retracted row
    has no values: it stands for results that are void, of a window for which the function gives none, or of a session
    that a late row has joined to one still open.
    """
    of_day = view.window.rows_for_day(day) & view.window.may_start_on(day, F.col(f"`{view.of.event_time}`"))
    near = log.where(of_day & (F.col(BATCH) <= through.number))
    late = group(pairs(near, view), view, extra={"_late_rows": F.count_if("_late")}).where(
        (F.to_date(f"{WINDOW}.start") == date_literal(day)) & (F.col("_late_rows") > 0)
    )
    results = finish(late, view, "_late_rows").withColumn(RETRACTED, F.lit(False))
    merges = kind_of(view).merges
    if merges and through.after.watermark is not None:
        results = results.where(F.col("window_end") <= literal(view.window.closed_by(through.after.watermark)))
    if merges or view.function is not None:
        results = retract_others(results, late, view, "_late_rows")
    return results.select(
        *view.columns, "_late_rows", RETRACTED, F.lit(through.number).cast("bigint").alias("_through_batch"), "_day"
    )


def read_corrections(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame | None:
    """The corrections as a batch frame, at one Delta `version` or the newest, or None while there is no such table.

    As of a batch of the log they are computed: those that all late rows up to it call for. Those of days that the log
    has dropped since are read: no batch brought a row of them that it had not counted.
    """
    if lake.cut is not None:
        return _called_for(spark, lake, view)
    return _stored(spark, lake, view, version)


def _stored(spark: SparkSession, lake: Lake, view: Windowed, version: int | None = None) -> DataFrame | None:
    table = open_side(lake, view, CORRECTIONS, version)
    return None if table is None else delta.read(spark, lake.corrections(view), table.version())


def _called_for(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame | None:
    newest = head(lake, view.of)
    if newest is None or not view.corrected:
        return None
    log = read_log(spark, lake, view.of)
    days = _changed_sessions(log, view) if kind_of(view).merges else _late_days(log, view)
    since = whole_since(lake, view)
    late = [row["day"] for row in days.select("day").distinct().collect()]
    frames = [correction(log, view, day, newest) for day in late if since is None or day >= since]
    stored = None if since is None else _stored(spark, lake, view)
    if stored is not None:
        frames.append(stored.where(~can_be_compared(since)).drop("_corrected_at"))
    return reduce(DataFrame.unionByName, frames) if frames else None


def corrected_through(lake: Lake, view: Windowed, days: Iterable[date], version: int | None = None) -> dict[date, int]:
    """Those of `days` that are corrected, each with the batch up to which its correction goes.

    At one Delta `version` or the newest. The table itself keeps these numbers, so that no commit is read.
    """
    table = open_side(lake, view, CORRECTIONS, version)
    through = {} if table is None else {day: table.transaction_version(_corrected_number(day)) for day in days}
    return {day: batch for day, batch in through.items() if batch is not None and batch >= 0}


def _corrected_number(day: date) -> str:
    return f"corrected.{day.isoformat()}"

"""Corrections: the windows of a day that have late rows, recomputed from all their rows and put in place whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DAY, RETRACTED, WINDOW, ViewError, date_literal, literal
from streaming.declare import CORRECTIONS, CoGrouped, Stream, TwoSided, WindowJoined
from streaming.joins.windows_late import logs_of
from streaming.joins.windows_plan import is_closed, late_days, until
from streaming.joins.windows_results import failed_pairs, finish
from streaming.joins.windows_rows import LATE, group, pairs, possible_pairs
from streaming.lake import Lake
from streaming.operators import (
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
from streaming.views import kind_of, last_end, retract_others

_LATE_ROWS = "_late_rows"


def correct(
    spark: SparkSession,
    lake: Lake,
    operator: TwoSided,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit a day; returns the corrected results per day.

    Idempotent and restartable: a day is a function of the logs up to the batches that the commit names.

    Raises:
        LogError: one of the streams has no log yet.
        ViewError: late rows are dropped by the declaration, or rows of a day were dropped by a log's retention.
        ChangedDeclaration: it is not the one that made the tables.
        FencedError: the tables were built anew meanwhile.
        CorrectionsFailed: days for which the function raised, once all others are corrected.
    """
    if not operator.corrected:
        raise ViewError(
            f"{operator.kind_name} {operator.name!r} is declared with late='drop', so nothing is corrected; declare "
            "late='correct' to have its late rows counted, they are all in the logs."
        )
    generation = generation_of(delta.open_table(lake.table(operator)))
    check_declaration(lake, operator)
    days = set(days)
    check_whole(lake, operator, days)
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


def _rows_of_sessions(logs: Mapping[str, DataFrame], operator: TwoSided, day: date) -> Mapping[str, DataFrame]:
    """Rows up to the end of the last session of the day: what fails for a later one is not of the day."""
    if not operator.window.merging:
        return logs
    near = {name: rows.where(operator.window.rows_for_day(day)) for name, rows in logs.items()}
    end = literal(last_end(possible_pairs(operator, near), operator, day))
    return {each.name: logs[each.name].where(F.col(f"`{each.event_time}`") <= end) for each in operator.reads}


def correction(logs: Mapping[str, DataFrame], operator: TwoSided, day: date, at: Progress) -> DataFrame:
    """The correction of one day as a pure function of the `logs`, by stream, up to `at`.

    The operator's columns, `_late_rows` (those in the window), `_retracted`, `_through_left`, `_through_right`, `_day`.
    A retracted row has no values: it stands for results that are void, of a window for which the function gives none,
    or of a session that a late row has joined to one still open.
    """
    known = until(logs, at)
    near = {each.name: known[each.name].where(_of_day(each, operator, day)) for each in operator.reads}
    merges, closed = kind_of(operator).merges, is_closed(operator, at)
    of_day = (F.to_date(f"{WINDOW}.start") == date_literal(day)) & (F.col(_LATE_ROWS) > 0)
    groups = group(pairs(operator, near), operator, **{_LATE_ROWS: F.count_if(LATE)})
    late = groups.where(of_day if merges else of_day & closed)
    results = finish(late.where(closed) if merges else late, operator, _LATE_ROWS)
    results = results.withColumn(RETRACTED, F.lit(False))
    # The rows of a fixed window only become more, so that a join that had a result there has one again.
    if merges or isinstance(operator, CoGrouped):
        results = retract_others(results, late, operator, _LATE_ROWS)
    elif isinstance(operator, WindowJoined) and operator.diverts and operator.kind != "inner":
        # But for a row without a partner in place of which come pairs that fail.
        results = retract_others(results, _with_failed_pairs(late, operator), operator, _LATE_ROWS)
    through = {f"_through_{side.name}": F.lit(at.through[side.stream.name]).cast("bigint") for side in operator.sides}
    return results.withColumns(through).select(*operator.columns, _LATE_ROWS, RETRACTED, *through, DAY)


def _of_day(stream: Stream, operator: TwoSided, day: date) -> Column:
    window = operator.window
    return window.rows_for_day(day) & window.may_start_on(day, F.col(f"`{stream.event_time}`"))


def _with_failed_pairs(groups: DataFrame, operator: WindowJoined) -> DataFrame:
    failing = failed_pairs(groups, operator).select(*operator.identity).distinct()
    same = [groups[key].eqNullSafe(failing[key]) for key in operator.by]
    same += [F.col(f"{WINDOW}.{bound}") == failing[f"window_{bound}"] for bound in ("start", "end")]
    return groups.join(failing, same, "left_semi")


def read_corrections(
    spark: SparkSession, lake: Lake, operator: TwoSided, version: int | None = None
) -> DataFrame | None:
    """The corrections as a batch frame, at one Delta `version` or the newest, or None while there is no such table.

    As of batches of the logs they are computed: those that all late rows up to them call for. Those of days that a log
    has dropped since are read.
    """
    if lake.cut is not None:
        return _called_for(spark, lake, operator)
    return _stored(spark, lake, operator, version)


def _stored(spark: SparkSession, lake: Lake, operator: TwoSided, version: int | None = None) -> DataFrame | None:
    table = open_side(lake, operator, CORRECTIONS, version)
    return None if table is None else delta.read(spark, lake.corrections(operator), table.version())


def _called_for(spark: SparkSession, lake: Lake, operator: TwoSided) -> DataFrame | None:
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


def numbered(corrections: DataFrame | None) -> DataFrame | None:
    """Corrections with `_through_batch`, by which the newer of two is told: the batches of both logs together.

    Neither log ever becomes shorter, so that a later correction never has a lower number.
    """
    through = F.col("_through_left") + F.col("_through_right")
    return None if corrections is None else corrections.withColumn("_through_batch", through)

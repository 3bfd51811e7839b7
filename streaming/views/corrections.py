"""Corrections: the windows of a day that have late pairs, recomputed from all their rows.

`plan` tells the days that need one, and `correct` computes it; all corrections of a day are replaced in one commit.
`current_results` are what is current: first results overlaid with updates and corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time
from functools import partial, reduce

from deltalake import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import Window as SortedBy
from pyspark.sql import functions as F

from streaming.base import (
    BATCH,
    DAY,
    RETRACTED,
    WINDOW,
    FrozenMapping,
    OperatorError,
    date_literal,
    from_micros,
    literal,
)
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
    signed_from,
    whole_since,
)
from streaming.tables import delta
from streaming.views.computation import computation_of, is_closed, until
from streaming.views.results import in_lateness, kind_of, last_end, retract_others

_LATE_ROWS = "_late_rows"
"""The column of a correction that counts the late pairs in its window."""
_WINDOW_ID = "_window_id"
_NEVER: Mapping[str, int] = FrozenMapping({})


def logs_of(
    spark: SparkSession, lake: Lake, operator: OverWindows, versions: Mapping[str, int] | None = None
) -> dict[str, DataFrame]:
    """The rows of the operator's logs as batch frames, by stream, at Delta `versions` or the newest.

    Raises:
        LogError: one of the streams has no log yet.
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

    `log_versions`, by stream, and `corrections_version` are Delta versions at which the logs and the table of
    corrections are read; the newest where they are left out. A day is also among them if it has late rows for which it
    cannot be computed whether they count: its correction fails, and says why. No day needs a correction for pairs that
    are dropped by the declaration, or that the stream process publishes itself as updates, and none does of which rows
    were dropped by the retention of a log.

    Raises:
        LogError: the operator has one stream, which has no log yet.
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
    """The days that need a correction by the `logs` up to `at`, given the open table of corrections, if there is one.

    A day needs one if late pairs are newer than its correction, or if a window that has some was open when the day was
    corrected, and has closed since. With two logs, the batch numbers of a day are those of the log of which its
    correction lacks more batches.
    """
    ended = ended_since(operator, at, corrections)
    entries = []
    for row in late_days(until(logs, at), operator, at).collect():
        day, corrected = row["day"], Corrected.of(operator, row["day"], corrections)
        # A log that brought no late pair of the day has no newest batch.
        newest = {name: batch for name, batch in row["newest"].asDict().items() if batch is not None}
        if day in ended or (operator.joins_clocks and _has_closed(operator, row["closed"], corrected)):
            # A window has closed without a newer late pair, so the correction is to go through all batches.
            newest = dict(at.through)
        entry = corrected.pending(day, row["late_pairs"], newest)
        if entry is not None:
            entries.append(entry)
    return entries


def late_days(logs: Mapping[str, DataFrame], operator: OverWindows, at: Progress) -> DataFrame:
    """The days that have late pairs, a row for each `day`, in order.

    `late_pairs` is their number, `newest` a struct with the newest batch of each log that brought one (null for none),
    and `closed` the latest end of their windows that is closed, in microseconds since the epoch.

    Open windows are left out until they close, because a row that is late by its own log's clock may still be in time
    by the joint one. Open sessions are not: a late row may have joined one with a session that was published. It may
    also have moved the start of a session to an earlier day, so a session counts on each of its days.
    """
    computation, late, end = computation_of(operator), F.col("_late"), F.col(f"{WINDOW}.end")
    all_pairs, closed = computation.possible_pairs(logs), is_closed(operator, at)
    # A row that is taken back in time may part a session that a late row is in.
    moves = late | (computation.sign(all_pairs) < 0) if computation.sessions_may_part(logs) else late
    newest = {
        f"_newest_{place}": F.when(moves & computation.is_of(stream), F.col(BATCH))
        for place, stream in enumerate(operator.reads)
    }
    if kind_of(operator).merges:
        counted = {"late_pairs": F.count_if(late), "_watermark": F.max(F.when(late, F.col("_watermark")))}
        counted |= {name: F.max(batch) for name, batch in newest.items()}
        aggregates = [column.alias(name) for name, column in counted.items()]
        groups = kind_of(operator).group(all_pairs, operator.by, aggregates)
        windows, days = groups.where("late_pairs > 0"), days_of_session()
    else:
        columns = (batch.alias(name) for name, batch in newest.items())
        windows = all_pairs.where(late & closed).select(WINDOW, "_watermark", F.lit(1).alias("late_pairs"), *columns)
        days = F.to_date(f"{WINDOW}.start")
    if operator.updated:
        # The stream process itself publishes an update for a late row within the allowed lateness.
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
    """A generator column with each day from the start to the end of a session, which makes a row of each."""
    return F.explode(F.sequence(F.to_date(f"{WINDOW}.start"), F.to_date(f"{WINDOW}.end")))


def ended_since(operator: OverWindows, at: Progress, corrections: DeltaTable | None) -> set[date]:
    """The days with a session that was still open when the day was corrected, and is closed at `at`; starts no Spark.

    A retracted correction stands for such a session. There are none where windows do not merge, because only closed
    ones are corrected, nor where the stream process itself publishes updates for late rows of closed sessions.
    """
    if not operator.window.merging or operator.updated or corrections is None or at.watermark is None:
        return set()
    closed = operator.window.closed_by(at.watermark)
    return {day for day, end in _open_ends(operator, corrections) if end <= closed}


def left_open(operator: OverWindows, corrections: DeltaTable | None) -> set[date]:
    """The days with a session that was still open when the day was corrected; starts no Spark."""
    if not operator.window.merging or corrections is None:
        return set()
    return {day for day, _ in _open_ends(operator, corrections)}


def _open_ends(operator: OverWindows, corrections: DeltaTable) -> set[tuple[date, datetime]]:
    """The corrected days with the end of each session that was still open then; others are retracted, too."""
    rows = delta.contents(corrections, columns=(DAY, "window_end", RETRACTED)).to_pylist()
    void = {(row[DAY], row["window_end"]) for row in rows if row[RETRACTED]}
    then = {day: Corrected.of(operator, day, corrections).watermark for day, _ in void}
    closed = {day: None if mark is None else operator.window.closed_by(mark) for day, mark in then.items()}
    return {(day, end) for day, end in void if (by := closed[day]) is None or end > by}


def _has_closed(operator: OverWindows, latest_end: int | None, corrected: Corrected) -> bool:
    """True if the last of a day's closed windows was still open when the day was corrected.

    `latest_end` is in microseconds since the epoch, None where no window is closed.
    """
    if latest_end is None or not corrected.has_begun:
        return False
    watermark_then = corrected.watermark
    return watermark_then is None or from_micros(latest_end) > operator.window.closed_by(watermark_then)


def correct(
    spark: SparkSession,
    lake: Lake,
    operator: OverWindows,
    days: Iterable[date],
    now: Callable[[], datetime],
    on_day: Callable[[date, int], None] = lambda day, rows: None,
) -> dict[date, int]:
    """Replace the corrections of each of `days`, one commit a day; returns the number of corrected results per day.

    `on_day` is called with each day and that number, once it is committed. This is idempotent and can be restarted: the
    corrections of a day depend only on the logs up to the batches that the commit names. `now` gives the processing
    time, for `_corrected_at`.

    Raises:
        LogError: one of the streams has no log yet.
        OperatorError: late rows are dropped by the declaration, or rows of a day were dropped by a log's retention.
        ChangedDeclaration: the tables were made by another declaration.
        FencedError: the tables were built anew meanwhile.
        CorrectionsFailed: some days could not be computed; raised once all others are corrected.
    """
    if not operator.corrected:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} is declared with late='drop', so nothing is corrected; declare "
            "late='correct' to have its late rows counted, they are all in the logs."
        )
    generation = generation_of(delta.open_table(lake.table(operator)))
    check_declaration(lake, operator)
    days = set(days)
    # The logs are opened after the heads are read, so that they hold every batch of `at`.
    at, parted = Progress.at_heads(lake, operator), parted_from(lake, operator)
    logs = logs_of(spark, lake, operator)
    # Rows may have been dropped before they were opened.
    check_whole(lake, operator, days)

    def correct_day(day: date) -> int:
        near = logs if _is_of_hulls(at, parted) else _logs_for_day(logs, operator, day)
        rows = correction(near, operator, day, at, parted)
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


def _logs_for_day(logs: Mapping[str, DataFrame], operator: OverWindows, day: date) -> Mapping[str, DataFrame]:
    """The `logs`; of sessions only rows up to the end of the last one of the day, so that no later row can fail it."""
    if not operator.window.merging:
        return logs
    near = {name: rows.where(operator.window.rows_for_day(day)) for name, rows in logs.items()}
    end = literal(last_end(computation_of(operator).possible_pairs(near), operator, day))
    return {each.name: logs[each.name].where(F.col(f"`{each.event_time}`") <= end) for each in operator.reads}


def parted_from(lake: Lake, operator: OverWindows) -> Mapping[str, int]:
    """The first batch of each log that may part sessions, by stream; none where windows do not merge."""
    streams = operator.reads if operator.window.merging else ()
    first = {stream.name: signed_from(lake, stream) for stream in streams}
    return {name: batch for name, batch in first.items() if batch is not None}


def _is_of_hulls(at: Progress, parted: Mapping[str, int]) -> bool:
    """True if a correction up to `at` is one of hulls, because sessions may have fallen apart by then."""
    return any(at.through[name] >= batch for name, batch in parted.items())


def correction(
    logs: Mapping[str, DataFrame], operator: OverWindows, day: date, at: Progress, parted: Mapping[str, int]
) -> DataFrame:
    """The corrections of one day, as a pure function of the `logs`, by stream, up to `at`.

    `parted` are the batches from which on sessions may fall apart, as `parted_from` gives them.

    Their columns are those of the operator, `_late_rows` (the late pairs in the window), `_retracted`, the batch of
    each log up to which rows are counted, and `_day`. A retracted row has no values. It says that published results of
    its window are void: there are none by all rows, or it is a session that a late row has joined to one still open.
    """
    if _is_of_hulls(at, parted):
        return _correction_of_hulls(logs, operator, day, at)
    computation, known = computation_of(operator), until(logs, at)
    near = {each.name: known[each.name].where(_of_day(each, operator, day)) for each in operator.reads}
    merges, closed = kind_of(operator).merges, is_closed(operator, at)
    late_of_day = (F.to_date(f"{WINDOW}.start") == date_literal(day)) & (F.col(_LATE_ROWS) > 0)
    groups = computation.group(computation.pairs(near), {_LATE_ROWS: F.count_if("_late")})
    # An open session has no result yet, but is kept among these, as it may make published ones void.
    late = groups.where(late_of_day if merges else late_of_day & closed)
    results = computation.finish(late.where(closed) if merges else late, _LATE_ROWS)
    results = results.withColumn(RETRACTED, F.lit(False))
    voidable = computation.voidable(late)
    if voidable is not None:
        results = retract_others(results, voidable, operator, _LATE_ROWS)
    return _with_progress(results, operator, at)


def _with_progress(results: DataFrame, operator: OverWindows, at: Progress) -> DataFrame:
    through = {name: F.lit(at.through[stream.name]).cast("bigint") for name, stream in operator.counted_through.items()}
    return results.withColumns(through).select(*operator.columns, _LATE_ROWS, RETRACTED, *through, DAY)


def _correction_of_hulls(logs: Mapping[str, DataFrame], operator: OverWindows, day: date, at: Progress) -> DataFrame:
    """The corrections of one day where rows are taken back, so that sessions shrink and fall apart.

    Its unit is a hull: the session of all rows that were ever added, which only grows. Of one with late rows there are
    all sessions that begin on the day and are closed, and rows that are retracted: one from its first to its last
    instant on the day that the clock has passed, and one for each session still open. Whatever begins on the day within
    one of these rows is replaced.
    """
    computation, midnight = computation_of(operator), datetime.combine(day, time.min, UTC)
    start, end = F.col(f"{WINDOW}.start"), F.col(f"{WINDOW}.end")
    groups = computation.group(computation.pairs(until(logs, at)), {_LATE_ROWS: F.count_if("_late")})
    hulls = groups.where((F.col(_LATE_ROWS) > 0) & (F.to_date(start) <= date_literal(day)) & (end > literal(midnight)))
    sessions = computation.sessions(hulls, _LATE_ROWS).where(F.to_date(start) == date_literal(day))
    closed = is_closed(operator, at)
    results = computation.finish(sessions.where(closed), _LATE_ROWS).withColumn(RETRACTED, F.lit(False))
    # What begins later was never late for anything.
    passed = end if at.watermark is None else F.least(end, literal(operator.window.closed_by(at.watermark)))
    bounds = F.struct(F.greatest(start, literal(midnight)).alias("start"), passed.alias("end"))
    void = hulls.withColumn(WINDOW, bounds).where(start < end)
    names = (*operator.by, WINDOW, _LATE_ROWS)
    void = void.select(*names).unionByName(sessions.where(~closed).select(*names))
    return _with_progress(retract_others(results, void, operator, _LATE_ROWS), operator, at)


def _of_day(stream: Stream, operator: OverWindows, day: date) -> Column:
    """True for the rows of the stream's log that may be in a window that starts on the day."""
    window = operator.window
    return window.rows_for_day(day) & window.may_start_on(day, F.col(f"`{stream.event_time}`"))


def read_corrections(
    spark: SparkSession, lake: Lake, operator: OverWindows, version: int | None = None
) -> DataFrame | None:
    """The corrections as a batch frame, at one Delta `version` or the newest; None while there is no such table.

    If the lake is read at a cut of its logs, they are computed for all days with late rows up to the cut. Only those of
    days that a log has dropped since are read from the table: no batch can have brought rows that they do not count.
    """
    if lake.cut is not None:
        return _computed(spark, lake, operator)
    return _stored(spark, lake, operator, version)


def _stored(spark: SparkSession, lake: Lake, operator: OverWindows, version: int | None = None) -> DataFrame | None:
    """The corrections as the table has them; None where there is no table."""
    table = open_side(lake, operator, CORRECTIONS, version)
    return None if table is None else delta.read(spark, lake.corrections(operator), table.version())


def _computed(spark: SparkSession, lake: Lake, operator: OverWindows) -> DataFrame | None:
    """The corrections at the cut at which the lake is read; None where there is none."""
    if not operator.corrected:
        return None
    at, logs = Progress.at_heads(lake, operator), logs_of(spark, lake, operator)
    since, parted = whole_since(lake, operator), parted_from(lake, operator)
    late = [row["day"] for row in late_days(until(logs, at), operator, at).collect()]
    frames = [correction(logs, operator, day, at, parted) for day in late if since is None or day >= since]
    stored = None if since is None else _stored(spark, lake, operator)
    if stored is not None:
        frames.append(stored.where(~can_be_compared(since)).drop("_corrected_at"))
    return reduce(DataFrame.unionByName, frames) if frames else None


def corrected_through(lake: Lake, view: Windowed, days: Iterable[date]) -> dict[date, int]:
    """The corrected ones of `days`, each with the batch up to which its correction counts rows; starts no Spark.

    The table keeps these numbers (see `corrected_numbers`), so its history need not be read.
    """
    table = open_side(lake, view, CORRECTIONS)
    through = {day: Corrected.of(view, day, table).through[view.of.name] for day in days}
    return {day: batch for day, batch in through.items() if batch >= 0}


def current_results(
    first: DataFrame,
    corrections: DataFrame | None,
    view: OverWindows,
    updates: DataFrame | None = None,
    parted: Mapping[str, int] = _NEVER,
) -> DataFrame:
    """First results overlaid with updates and corrections: the view's `columns`, `_day`, and `_corrected` (boolean).

    Of a window the newest result counts, which is the one that has seen most batches. Sessions only grow, so it stands
    for all that have become one with it. From the batches `parted` on, by stream, rows may be taken back, so that they
    do not: the correction of a day stands for what begins on it between the bounds of one of its rows. An update or a
    correction that only retracts shows nothing and hides what it stands for.
    """
    current = current_with_reasons(first, corrections, view, updates, parted)
    return current.withColumn("_corrected", F.col("_reason") != "first").drop("_reason")


def current_with_reasons(
    first: DataFrame,
    corrections: DataFrame | None,
    view: OverWindows,
    updates: DataFrame | None = None,
    parted: Mapping[str, int] = _NEVER,
) -> DataFrame:
    """The current results with `_reason` instead of `_corrected`.

    It says whether the newest result is the `first`, an `update` or a `correction`.
    """
    columns = [*view.columns, "_day", "_reason"]

    def layer(frame: DataFrame, through: Column, reason: str, shown: Column) -> DataFrame:
        of_layer = [F.lit(reason).alias("_reason"), through.alias("_through"), shown.alias("_shown")]
        return frame.select(*view.columns, "_day", *of_layer)

    def corrected(frame: DataFrame) -> DataFrame:
        # Of several logs the batches together: none ever becomes shorter.
        through = reduce(Column.__add__, map(F.col, view.counted_through))
        return layer(frame, through, "correction", ~F.col(RETRACTED))

    current = layer(first, F.lit(-1), "first", F.lit(True))
    newer = [] if updates is None else [layer(updates, F.col("_batch"), "update", ~F.col(RETRACTED))]
    of_hulls = _are_of_hulls(view, parted)
    if corrections is not None and not view.sessions_may_part:
        newer.append(corrected(corrections if of_hulls is None else corrections.where(~of_hulls)))
    if newer:
        newest = _newest(newer, view)
        current = _not_corrected(current, newest, view).unionByName(newest)
    if corrections is not None and of_hulls is not None:
        hulls = corrected(corrections.where(of_hulls))
        current = _outside(current, hulls, view).unionByName(hulls)
    return current.where("_shown").select(*columns)


def _are_of_hulls(view: OverWindows, parted: Mapping[str, int]) -> Column | None:
    """True for the corrections that are of hulls; None where none is."""
    if view.sessions_may_part:
        return F.lit(True)
    batches = [
        F.col(through) >= parted[stream.name]
        for through, stream in view.counted_through.items()
        if stream.name in parted
    ]
    return reduce(Column.__or__, batches) if batches else None


def _newest(layers: list[DataFrame], view: OverWindows) -> DataFrame:
    """The results of each window in the layer that has seen most batches; of two that have, in the later one."""
    results = reduce(
        DataFrame.unionByName, [layer.withColumn("_layer", F.lit(number)) for number, layer in enumerate(layers)]
    )
    same = SortedBy.partitionBy(*view.by, _WINDOW_ID).orderBy(F.desc("_through"), F.desc("_layer"))
    identified = kind_of(view).with_window_id(results, view.by, _WINDOW_ID)
    return identified.withColumn("_rank", F.rank().over(same)).where("_rank = 1").drop("_rank", "_layer", _WINDOW_ID)


def _not_corrected(first: DataFrame, corrected: DataFrame, view: OverWindows) -> DataFrame:
    """The first results for whose window nothing else stands."""
    same_key = [first[key].eqNullSafe(corrected[key]) for key in view.by]
    return first.join(corrected, [*same_key, kind_of(view).same_window(first, corrected)], "left_anti")


def _outside(results: DataFrame, hulls: DataFrame, view: OverWindows) -> DataFrame:
    """The results that begin on another day than a row of the corrections `hulls`, or outside of its bounds."""
    same_key = [results[key].eqNullSafe(hulls[key]) for key in view.by]
    within = results["window_start"].between(hulls["window_start"], hulls["window_end"])
    outside = results.join(hulls, [*same_key, results[DAY] == hulls[DAY], within], "left_anti")
    if view.sessions_may_part:
        return outside
    # The day after may have been corrected while sessions only grew, when that of the session's begin stood for both.
    return _not_corrected(outside, hulls.where("_shown"), view)

"""Windowed views as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time
from functools import partial, reduce

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, DAY, ORIGIN, WINDOW, ViewError, from_micros, literal, told
from streaming.declare import CORRECTIONS, FAILED, STATE, UPDATES, Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, OperatorCounts, batches_after, head, read_log, valid
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    Progress,
    Step,
    Written,
    built_anew,
    can_be_compared,
    check_declaration,
    rows_per_step,
    runtime_of,
    slices,
    versions_now,
    whole_since,
)
from streaming.spark import as_json
from streaming.tables import delta
from streaming.views.corrections import correct, plan, read_corrections
from streaming.views.current import current_results, read_first
from streaming.views.functions import ERROR, errors_of
from streaming.views.kept import kept_of
from streaming.views.kinds import kind_of
from streaming.views.late import duplicates, late_pairs, unassigned
from streaming.views.laws import PinnedView, audit_view
from streaming.views.open_windows import OpenWindows, read_open, shown_through
from streaming.views.panes import can_fold
from streaming.views.results import (
    aggregate,
    counted_by,
    counted_rows,
    failure,
    group,
    has_windows,
    members,
    pairs,
    possible_pairs,
    possibly_in_windows_after,
    results_columns,
)
from streaming.views.steps import FOLDED_FROM, GATHERED_FROM, FixedSteps, SessionSteps, ViewSteps, reads_of, waiting_at
from streaming.views.updates import Updates, read_updates, updated_through, updates_of
from streaming.windows import whole_days


@runtime_of.register
def _(operator: Windowed, lake: Lake) -> OperatorRuntime:
    return WindowedRuntime(operator, lake)


class WindowedRuntime(OperatorRuntime):
    """A windowed view runs in steps over its log; its corrections are batch reads of the log."""

    operator: Windowed

    def __init__(self, view: Windowed, lake: Lake) -> None:
        self.operator = view
        self.lake = lake
        self._open_windows = OpenWindows(lake, view)
        self._steps: ViewSteps | None = None
        self._updating: Updates | None = None

    def check(self) -> None:
        check_declaration(self.lake, self.operator)
        _check_position(self.operator, delta.open_table(self.lake.first(self.operator)))

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        steps = self._steps_on(spark)
        behind = batches_after(self.lake, self.operator.of, steps.position().batch)
        for batches in slices(behind, rows_per_step(spark)):
            yield Step({self.operator.of.name: batches}, partial(self._step, steps, batches, now))

    def through(self) -> dict[str, int]:
        return {self.operator.of.name: Progress.now(self.lake, self.operator).batch}

    def analyse(self, logs: Mapping[str, DataFrame]) -> None:
        view = self.operator
        _ = aggregate(pairs(logs[view.of.name], view), view).schema

    def counts(self, stream: Stream) -> OperatorCounts | None:
        view, time = self.operator, F.col(stream.event_time)
        counted = counted_rows(view)
        return OperatorCounts(
            late=F.when(counted, view.window.late_windows(time, F.col("_watermark"))),
            unassigned=F.when(counted, view.window.has_no_window(time)),
            by=counted_by(view),
        )

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        view = self.operator
        candidates = possibly_in_windows_after(rows, view, watermark).where(has_windows(view))
        last_end = F.unix_micros(F.max(view.window.last_end(F.col(stream.event_time))))
        row = candidates.agg(last_end).first()
        latest = None if row is None or row[0] is None else from_micros(row[0])
        return None if latest is None or latest <= view.window.closed_by(watermark) else latest

    def after_batch(self, spark: SparkSession, batch: Batch, now: Callable[[], datetime]) -> None:
        self._open_windows.write_if_due(spark, batch, now())

    def keep_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        self._update(spark, head, now)
        self.after_batch(spark, head, now)

    def catch_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        self._update(spark, head, now)
        self._open_windows.write(spark, head, now())

    def keeps_up_from(self) -> int | None:
        view = self.operator
        through = [updated_through(self.lake, view)] if view.updated else []
        through += [shown_through(self.lake, view)] if view.early is not None else []
        return min(through) + 1 if through else None

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        view = self.operator
        return {
            "current": self._current,
            "first": lambda spark: read_first(spark, self.lake, view).orderBy("window_start", *view.by),
            "late": self._late,
            "corrections": self._corrections,
            "updates": self._updates,
            "open": lambda spark: read_open(spark, self.lake, view).orderBy("window_start", *view.by),
            **({FAILED: self._failed} if view.diverts else {}),
            "unassigned": lambda spark: unassigned(read_log(spark, self.lake, view.of), view),
            "duplicates": lambda spark: duplicates(read_log(spark, self.lake, view.of), view).orderBy(
                "window_start", *view.by
            ),
        }

    def versions(self) -> Mapping[str, int]:
        # As of an older batch the newest rows are read, and those that were there then are told by themselves.
        return versions_now(self.lake, self.operator)

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return read_first(spark, self.lake, self.operator, version)

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        return read_corrections(spark, self.lake, self.operator, version)

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        view, first = self.operator, read_first(spark, self.lake, self.operator, versions[""])
        corrections, updates = (versions.get(suffix, delta.BEFORE) for suffix in (CORRECTIONS, UPDATES))
        return current_results(
            first,
            read_corrections(spark, self.lake, view, corrections),
            view,
            read_updates(spark, self.lake, view, updates),
        )

    def watermark_at(self, version: int) -> datetime | None:
        return Progress.of(self.operator, delta.open_table(self.lake.first(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        view = self.operator
        return 0 if view.corrected else late_pairs(logs[view.of.name], view).count()

    def described(self, spark: SparkSession) -> dict[str, str]:
        return _described(spark, self.lake, self.operator)

    def position(self) -> str:
        return _position(self.lake, self.operator, Progress.now(self.lake, self.operator))

    def plan(self, spark: SparkSession) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator)

    def plan_at(self, spark: SparkSession, logs: Mapping[str, int], corrections: int) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator, logs[self.operator.of.name], corrections)

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        return correct(spark, self.lake, self.operator, days, now, on_day)

    def read_through(self) -> dict[str, int]:
        return {self.operator.of.name: _read_through(self.lake, self.operator)}

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        return _needs_since(spark, self.lake, self.operator, since[stream.name])

    def why_all(self, stream: Stream) -> str:
        return "has windows of which only the rows tell how far back they reach"

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        return self.operator.window.whole_since(super().whole_since(dropped))

    def refresh(self) -> None:
        self._steps = self._updating = None

    def pin(self, spark: SparkSession) -> PinnedView:
        return PinnedView.now(self.lake, self.operator)

    def laws(self, spark: SparkSession, pinned: PinnedView, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        return audit_view(spark, self.lake, pinned, logs[self.operator.of.name])

    def _current(self, spark: SparkSession) -> DataFrame:
        view, lake, at = self.operator, self.lake, self.pin(spark)
        corrections = read_corrections(spark, lake, view, at.corrections)
        updates = read_updates(spark, lake, view, at.updates)
        current = current_results(read_first(spark, lake, view, at.first), corrections, view, updates)
        return current.orderBy("window_start", *view.by)

    def _late(self, spark: SparkSession) -> DataFrame:
        view = self.operator
        columns = ("window_start", "window_end", "_watermark", "_batch", *view.of.columns)
        return late_pairs(read_log(spark, self.lake, view.of), view).select(*columns)

    def _failed(self, spark: SparkSession) -> DataFrame:
        view, at = self.operator, Progress.as_read(self.lake, self.operator)
        rows = _failed(read_log(spark, self.lake, view.of), self.lake, view, at)
        return rows.orderBy(BATCH, ORIGIN, "window_start", "row")

    def _updates(self, spark: SparkSession) -> DataFrame:
        view, updates = self.operator, read_updates(spark, self.lake, self.operator)
        if updates is None:
            raise ViewError(
                f"view {view.name!r} has no updates at {self.lake.updates(view)!r}; they are what late='update' makes "
                f"of late pairs, and it has late={view.late!r}."
            )
        return updates.orderBy("window_start", *view.by, "_batch")

    def _corrections(self, spark: SparkSession) -> DataFrame:
        view, corrections = self.operator, read_corrections(spark, self.lake, self.operator)
        if corrections is None:
            raise ViewError(
                f"view {view.name!r} has no corrections at {self.lake.corrections(view)!r} yet; run `tidemark correct "
                f"{view.folder}` first, or point TIDEMARK_HOME to the lake that has them."
            )
        return corrections.orderBy("window_start", *view.by)

    def _update(self, spark: SparkSession, newest: Batch, now: Callable[[], datetime]) -> None:
        if not self.operator.updated:
            return
        if self._updating is None:
            self._updating = updates_of(spark, self.lake, self.operator, self._steps_on(spark).log)
        self._updating.follow(newest, now)

    def _step(self, steps: ViewSteps, batches: Sequence[Batch], now: Callable[[], datetime]) -> Written:
        try:
            return steps.step(batches, now)
        except BaseException:
            # The table of open sessions may be behind what is published: steps that begin anew see to that.
            self.refresh()
            raise

    def _steps_on(self, spark: SparkSession) -> ViewSteps:
        # Kept, because it knows the files of the log.
        if self._steps is None:
            kind = SessionSteps if self.operator.window.merging else FixedSteps
            steps = kind(spark, self.lake, self.operator, LogFiles(self.lake, self.operator.of))
            steps.repair()
            self._steps = steps
        return self._steps


def _check_position(view: Windowed, table: DeltaTable | None) -> None:
    """Refuse a table of an older version of the platform, which does not say how far it is.

    Raises:
        ViewError: with the way out.
    """
    if table is not None and not Progress.of(view, table).has_begun and table.get_add_actions().num_rows:
        raise ViewError(
            f"the tables of view {view.name!r} are of an older version of Tidemark, which kept elsewhere how far they "
            f"are. Build them anew from the log, which stays as it is, with `tidemark rebuild {view.name}`."
        )


def _failed(log: DataFrame, lake: Lake, view: Windowed, at: Progress) -> DataFrame:
    """The rows of a read of the log that the view cannot compute, and the closed windows that its function cannot.

    `error`, `row` as JSON (of a window its key), `window_start` and `window_end` (null for a row), `_at`, `_batch` and
    `_origin` (null for a window), `_day`. A window is of its rows in time, or of all where late ones are corrected;
    `at` is how far the view is.
    """
    rows = _rows(log, view)
    if view.function is None or at.watermark is None:
        return rows
    return rows.unionByName(_windows(log, lake, view, at))


def _rows(log: DataFrame, view: Windowed) -> DataFrame:
    error = failure(view)
    instant = F.lit(None).cast("timestamp")
    told = valid(log).select(
        (F.lit(None).cast("string") if error is None else error).alias("error"),
        as_json(F.col(f"`{name}`") for name in view.of.columns).alias("row"),
        instant.alias("window_start"),
        instant.alias("window_end"),
        F.col(f"`{view.of.event_time}`").alias(AT),
        BATCH,
        ORIGIN,
        DAY,
    )
    return told.where(F.col("error").isNotNull())


def _windows(log: DataFrame, lake: Lake, view: Windowed, at: Progress) -> DataFrame:
    assert view.function is not None and at.watermark is not None
    counted = pairs(log.where(F.col(BATCH) <= at.batch), view)
    closed = F.col(f"{WINDOW}.end") <= literal(view.window.closed_by(at.watermark))
    parts = [counted.where("not _late"), *([counted] if view.corrected else [])]
    keys = (*view.by, WINDOW)
    errors = [
        errors_of(view.function, members(group(part, view).where(closed), view).where("_copy = 1"), keys)
        for part in parts
    ]
    told = reduce(DataFrame.unionByName, errors).select(
        F.col(ERROR).alias("error"),
        as_json(F.col(f"`{name}`") for name in view.by).alias("row"),
        F.col(f"{WINDOW}.start").alias("window_start"),
        F.col(f"{WINDOW}.end").alias("window_end"),
        F.lit(None).cast("timestamp").alias(AT),
        F.lit(None).cast("bigint").alias(BATCH),
        F.lit(None).cast(log.schema[ORIGIN].dataType).alias(ORIGIN),
        F.to_date(f"{WINDOW}.start").alias(DAY),
    )
    return told.where(can_be_compared(whole_since(lake, view))).distinct()


def _read_through(lake: Lake, view: Windowed) -> int:
    """The newest batch up to which all tables of the view follow the log; -1 for none."""
    at = [Progress.now(lake, view).batch]
    if view.window.merging:
        at.append(Progress.of(view, delta.open_table(lake.table(view, STATE))).batch)
    if view.updated:
        at.append(updated_through(lake, view))
    return min(at)


def _needs_since(spark: SparkSession | None, lake: Lake, view: Windowed, since: date) -> date | None:
    """The first day of rows that the view may still need, once no row of a day before `since` comes any more.

    None for all rows. Of sessions only the rows tell, so that without a session of Spark it may be earlier.
    """
    if not view.window.merging:
        return view.window.needed_since(since)
    if view.window.reach is None:
        return None
    first = since if spark is None else _first_day(read_log(spark, lake, view.of), view, since)
    return first - whole_days(view.window.rows_before)


def _first_day(log: DataFrame, view: Windowed, since: date) -> date:
    """The first day of the sessions that rows of the day `since` or later are part of, or would touch."""
    sessions = kind_of(view).group(possible_pairs(log, view), view.by, [F.count(F.lit(1)).alias("rows")])
    touched = sessions.where(F.col(f"{WINDOW}.end") >= literal(datetime.combine(since, time.min, UTC)))
    first = touched.agg(F.to_date(F.min(f"{WINDOW}.start")).alias("day")).first()
    return since if first is None or first["day"] is None else min(first["day"], since)


def _described(spark: SparkSession, lake: Lake, view: Windowed) -> dict[str, str]:
    first, state = delta.open_table(lake.first(view)), delta.open_table(lake.table(view, STATE))
    return {
        "results": _results(view),
        "computed": _computed(spark, lake, view, Progress.of(view, first), Progress.of(view, state)),
        "state": "none" if state is None else f"{delta.size(lake.table(view, STATE)):,} bytes in {view.name}_{STATE}",
        "late rows": _late(view),
    }


def _results(view: Windowed) -> str:
    keys = f" per {', '.join(view.by)}" if view.by else ""
    where = f", of the rows where {view.where}" if view.where else ""
    return f"{', '.join(view.values)}{keys} and window, {view.window.fingerprint}, over {view.of.name}{where}"


def _computed(spark: SparkSession, lake: Lake, view: Windowed, at: Progress, folded: Progress) -> str:
    log = LogFiles(lake, view.of)
    kept = kept_of(view, results_columns(spark, view, log))
    if view.window.merging:
        what = "the parts of their aggregates" if kept.wholes else f"their rows, because {_untold(view)}"
        return f"open sessions are kept in a table, with {what}; each step merges its rows into them"
    closing = "when the clock passes the end of a window, its rows are read from the log"
    if not can_fold(view, kept):
        return f"{closing}; they cannot be folded on the way, because {_untold(view)}"
    if view.window.overlap >= GATHERED_FROM:
        closing += " and put together by pane before they are counted in each window"
    waiting = reads_of(view, waiting_at(lake, view, log, folded.batch, at))
    reads = f"{waiting:,} reads of rows wait for it now, each row in {_window_in_words(view)}"
    if folded.batch < 0:
        return f"{closing}; {reads}, and from {FOLDED_FROM:,} on they are folded into panes"
    return f"rows up to batch {folded.batch} are folded into panes of partial aggregates; {reads}"


def _window_in_words(view: Windowed) -> str:
    return "one window" if view.window.overlap == 1 else f"at most {view.window.overlap} windows"


def _untold(view: Windowed) -> str:
    """Why partial aggregates do not tell a view's values."""
    if view.function is not None:
        return "its function needs all of them"
    if view.distinct:
        return f"rows that agree in {', '.join(view.distinct)} count once"
    whole = [name for name, each in view.aggregates.items() if not each.parts]
    if whole:
        return f"{', '.join(whole)} cannot be put together from parts"
    return "its windows, or decimals made of doubles, cannot be put together from parts"


def _late(view: Windowed) -> str:
    if view.late == "drop":
        return "are dropped from the results; they stay in the log"
    waits = "they wait for the correction of their day"
    if not view.updated:
        return waits
    if view.window.merging:
        again = "of the end of their session it is published again, as an update, once it is closed"
        return f"within {view.allowed_lateness} {again}; then {waits}"
    return f"within {view.allowed_lateness} they are counted at once, as updates; then {waits}"


def _position(lake: Lake, view: Windowed, at: Progress) -> str:
    newest = head(lake, view.of)
    assert newest is not None
    return f"batch {at.batch:,} of {newest.number:,}, watermark {told(at.watermark)}{built_anew(at.generation)}"

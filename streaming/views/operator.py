"""Operators over windows as the rooms above know them, views first of all, and the windows that a view shows early."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Generic, TypeVar

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, DeclarationError, OperatorError, from_micros, interval, literal, told
from streaming.declare import CORRECTIONS, EACH_BATCH, FAILED, OPEN, STATE, UPDATES, OverWindows, Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, OperatorCounts, log_schema, read_log, valid
from streaming.operators import (
    Coming,
    Effect,
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    PinnedTables,
    Progress,
    SteppedRuntime,
    built_anew,
    create_table,
    generation_of,
    open_side,
    rows_per_day,
    runtime_of,
    signed_from,
    versions_now,
)
from streaming.sources import UnitTable
from streaming.spark import Unproven
from streaming.tables import delta
from streaming.views.arrow_results import MOST_ROWS, row_expressions
from streaming.views.changed_windows import effect_on_windows
from streaming.views.computation import WindowAnalysis, computation_of
from streaming.views.corrections import (
    correct,
    corrected_through,
    current_results,
    ended_since,
    left_open,
    logs_of,
    parted_from,
    plan,
    read_corrections,
)
from streaming.views.laws import ViewLaws, WindowLaws
from streaming.views.partial_results import keep_days
from streaming.views.results import (
    aggregate,
    duplicates,
    kind_of,
    pairs,
    possible_pairs,
    possibly_in_windows_after,
    read_first,
    unassigned,
)
from streaming.views.steps import (
    FOLDED_FROM,
    GATHERED_FROM,
    FixedSteps,
    FoldedSteps,
    SessionSteps,
    WindowSteps,
    can_fold,
    reads_of,
    waiting_at,
)
from streaming.views.updates import Updates, read_updates, updated_through, updates_of
from streaming.windows import whole_days

Of = TypeVar("Of", bound=OverWindows)


class OverWindowsRuntime(SteppedRuntime[Of, WindowSteps[Of]], Generic[Of]):
    """An operator over windows runs in steps over its logs; its corrections are batch reads of them."""

    fixed_steps: type[FixedSteps[Any]] = FixedSteps
    """Its steps where windows do not merge."""

    def unit_table(self, output: str = "") -> UnitTable:
        of = self.operator
        if output:
            raise DeclarationError(
                f"Table({of.name!r}, side={output!r}): of a {of.kind_name} its first results can be followed; leave "
                "side out. Late rows are in the log of each stream; corrections replace results: "
                "`Delivery(what='current')` sends those on."
            )
        return UnitTable(
            uri=self.lake.table(of),
            # A step publishes all windows that end before its watermark, so a later one never has an earlier end.
            unit="window_end",
            unit_name="window end",
            written="_written_at",
            at="window_end",
            made_by=f"run `tidemark run {of.folder}` first, until a window is closed",
            order=of.identity,
            generation=generation_of,
        )

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        _ = WindowAnalysis.once(spark, self.operator, columns).results

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {
            "current": lambda spark: self._in_order(self.current_at(spark, self.pin(spark).versions)),
            "first": lambda spark: self._in_order(read_first(spark, self.lake, self.operator)),
            "late": lambda spark: computation_of(self.operator).late_pairs(logs_of(spark, self.lake, self.operator)),
            "corrections": self._corrections,
            **({FAILED: self._failed} if self.operator.diverts else {}),
        }

    def versions(self) -> Mapping[str, int]:
        # As of older batches the newest rows are read, and those that were there then are told by themselves.
        return versions_now(self.lake, self.operator)

    def counts(self, stream: Stream) -> OperatorCounts | None:
        return computation_of(self.operator).counts(stream)

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The latest end of a window that is open, over all logs: each clock has to be past it."""
        operator, spark = self.operator, rows.sparkSession
        others = (other for other in operator.reads if other != stream and delta.exists(self.lake.log(other)))
        logs = {stream.name: rows} | {other.name: valid(read_log(spark, self.lake, other)) for other in others}
        if len(logs) < len(operator.reads):
            return None
        near = {
            each.name: possibly_in_windows_after(logs[each.name], each, operator.window, watermark)
            for each in operator.reads
        }
        end, closed = F.col(f"{WINDOW}.end"), literal(operator.window.closed_by(watermark))
        still_open = computation_of(operator).pairs(near).where(end > closed)
        latest = still_open.agg(F.unix_micros(F.max(end))).first()
        return None if latest is None or latest[0] is None else from_micros(latest[0])

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return read_first(spark, self.lake, self.operator, version)

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        return read_corrections(spark, self.lake, self.operator, version)

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        corrections, updates = (versions.get(suffix, delta.BEFORE) for suffix in (CORRECTIONS, UPDATES))
        return current_results(
            self.first_at(spark, versions[""]),
            self.corrections_at(spark, corrections),
            self.operator,
            read_updates(spark, self.lake, self.operator, updates),
            parted_from(self.lake, self.operator),
        )

    def watermark_at(self, version: int) -> datetime | None:
        return Progress.of(self.operator, delta.open_table(self.lake.table(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        return 0 if self.operator.corrected else computation_of(self.operator).pairs(logs).where("_late").count()

    def late_per_day(self, spark: SparkSession) -> Mapping[tuple[date, str], int]:
        computation, logs = computation_of(self.operator), logs_of(spark, self.lake, self.operator)
        late = computation.possible_pairs(logs).where("_late")
        return rows_per_day(late, F.col(f"{WINDOW}.start"), computation.side)

    def plan(
        self, spark: SparkSession, logs: Mapping[str, int] | None = None, corrections: int | None = None
    ) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator, logs, corrections)

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        return correct(spark, self.lake, self.operator, days, now, on_day)

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        # A row of one stream may still come into a window with rows of another one.
        if any(each.name not in since for each in self.operator.reads):
            return None
        return self.operator.window.needed_since(min(since[each.name] for each in self.operator.reads))

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        return self.operator.window.whole_since(super().whole_since(dropped))

    def pin(self, spark: SparkSession) -> PinnedTables[Of]:
        return pinned_windows(self.lake, self.operator)

    def position(self) -> str:
        at, heads = Progress.now(self.lake, self.operator), Progress.at_heads(self.lake, self.operator)
        places = [
            f"batch {number:,} of {heads.through[name]:,}{f' of {name}' if len(heads.through) > 1 else ''}, "
            f"watermark {told(at.watermarks[name])}"
            for name, number in at.through.items()
        ]
        return f"{'; '.join(places)}{built_anew(at.generation)}"

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect]:
        effect = effect_on_windows(spark, self.lake, self.operator, coming)
        return () if effect is None else (effect,)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Of], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return WindowLaws(spark, self.lake, pinned, logs).findings()

    def _in_order(self, results: DataFrame) -> DataFrame:
        return results.orderBy("window_start", *self.operator.by)

    def _corrections(self, spark: SparkSession) -> DataFrame:
        operator, corrections = self.operator, read_corrections(spark, self.lake, self.operator)
        if corrections is None:
            uri = self.lake.corrections(operator)
            raise OperatorError(
                f"{operator.kind_name} {operator.name!r} has no corrections at {uri!r} yet; run `tidemark correct "
                f"{operator.folder}` first, or point TIDEMARK_HOME to the lake that has them."
            )
        return self._in_order(corrections)

    def _failed(self, spark: SparkSession) -> DataFrame:
        logs, at = logs_of(spark, self.lake, self.operator), Progress.as_read(self.lake, self.operator)
        return computation_of(self.operator).failed(logs, self.lake, at)

    def _begun(self, spark: SparkSession) -> WindowSteps[Of]:
        kind = SessionSteps if self.operator.window.merging else self.fixed_steps
        steps = kind(spark, self.lake, self.operator)
        steps.repair()
        return steps


def pinned_windows(lake: Lake, operator: Of) -> PinnedTables[Of]:
    """The tables of results of the operator at their versions now."""
    # What has corrected first results counts also where the declaration makes none any more.
    others = {CORRECTIONS, UPDATES}.intersection(operator.reserved_suffixes)
    return PinnedTables(operator, versions_now(lake, operator, *others))


@runtime_of.register
def _(operator: Windowed, lake: Lake) -> OperatorRuntime:
    return WindowedRuntime(operator, lake)


class WindowedRuntime(OverWindowsRuntime[Windowed]):
    """A windowed view runs in steps over its log; its corrections are batch reads of the log."""

    fixed_steps = FoldedSteps

    def __init__(self, view: Windowed, lake: Lake) -> None:
        super().__init__(view, lake)
        self._open_windows = OpenWindows(lake, view)
        self._updating: Updates | None = None

    def check(self) -> None:
        super().check()
        _check_position(self.operator, delta.open_table(self.lake.first(self.operator)))

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
            **super().readable,
            "updates": self._updates,
            "open": lambda spark: read_open(spark, self.lake, view).orderBy("window_start", *view.by),
            "unassigned": lambda spark: unassigned(read_log(spark, self.lake, view.of), view),
            "duplicates": lambda spark: duplicates(read_log(spark, self.lake, view.of), view).orderBy(
                "window_start", *view.by
            ),
        }

    def analysis(self, spark: SparkSession) -> dict[str, Any]:
        """`parts`: aggregates are kept of open windows; `folds`: rows can be folded into panes.

        `by_spark`: why Arrow computes no results, empty where it does.
        """
        view = self.operator
        analysis = WindowAnalysis.once(spark, view, {view.of.name: log_schema(spark, view.of).json()})
        kept, expressions = analysis.kept, row_expressions(analysis)
        by_spark = expressions.reason if isinstance(expressions, Unproven) else ""
        return {"parts": bool(kept.wholes), "folds": can_fold(view, kept), "by_spark": by_spark}

    def described(self, analysis: Mapping[str, Any]) -> dict[str, str]:
        return _described(analysis, self.lake, self.operator)

    def corrected_through(self, days: Iterable[date]) -> Mapping[date, int] | None:
        return corrected_through(self.lake, self.operator, days)

    def reopened(self) -> set[date]:
        view, at = self.operator, Progress.at_heads(self.lake, self.operator)
        corrections = open_side(self.lake, view, CORRECTIONS)
        # One that is still open may have been parted.
        return left_open(view, corrections) if parted_from(self.lake, view) else ended_since(view, at, corrections)

    def outlives(self, column: str) -> bool:
        view = self.operator
        of_one_row = bool(view.distinct) or view.function is not None or delta.exists(self.lake.table(view, STATE))
        return column not in view.by and not of_one_row

    def keep_without(self, rows: Mapping[str, DataFrame]) -> set[date]:
        of_windows = pairs(rows[self.operator.of.name], self.operator).select(F.to_date(f"{WINDOW}.start").alias("day"))
        days = {row["day"] for row in of_windows.distinct().collect()}
        keep_days(self.lake, self.operator, days)
        return days

    def read_through(self) -> dict[str, int]:
        return {self.operator.of.name: _read_through(self.lake, self.operator)}

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        view, first = self.operator, since[stream.name]
        if not view.window.merging:
            return super().needs_since(spark, stream, since)
        if view.window.reach is None:
            return None
        if spark is not None:
            first = _first_day(read_log(spark, self.lake, stream), view, first)
        return first - whole_days(view.window.rows_before)

    def why_all(self, stream: Stream) -> str:
        return "has windows of which only the rows tell how far back they reach"

    def refresh(self) -> None:
        super().refresh()
        self._updating = None

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Windowed], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return ViewLaws(spark, self.lake, pinned, logs).findings()

    def _updates(self, spark: SparkSession) -> DataFrame:
        view, updates = self.operator, read_updates(spark, self.lake, self.operator)
        if updates is None:
            raise OperatorError(
                f"view {view.name!r} has no updates at {self.lake.updates(view)!r}; they are what late='update' makes "
                f"of late pairs, and it has late={view.late!r}."
            )
        return updates.orderBy("window_start", *view.by, "_batch")

    def _update(self, spark: SparkSession, newest: Batch, now: Callable[[], datetime]) -> None:
        if not self.operator.updated:
            return
        if self._updating is None:
            self._updating = updates_of(
                spark, self.lake, self.operator, self._steps_on(spark).logs[self.operator.of.name]
            )
        self._updating.follow(newest, now)


class OpenWindows:
    """Keeps the table of a view's open windows, after each batch or when the declared interval has passed."""

    def __init__(self, lake: Lake, view: Windowed) -> None:
        self._lake = lake
        self._view = view
        self._written_at: datetime | None = None

    def write_if_due(self, spark: SparkSession, batch: Batch, now: datetime) -> None:
        """Write the open windows as they are after `batch`, if it is time to."""
        every = self._view.early
        if every == EACH_BATCH or (every is not None and self._is_due(interval(every), now)):
            self.write(spark, batch, now)

    def write(self, spark: SparkSession, batch: Batch, now: datetime) -> None:
        """Write the open windows as they are after `batch`, where the view declares a table of them."""
        if self._view.early is None:
            return
        rows = open_windows(read_log(spark, self._lake, self._view.of), self._view, batch)
        written = rows.withColumn("_written_at", literal(now))
        uri = create_table(self._lake, self._view, OPEN, written.schema)
        numbers = {"through": batch.number}
        delta.replace_all(written, uri, says={**numbers, "view": self._view.name}, numbers=numbers)
        # Not before: a try that failed has written nothing, and a view that is paused for it goes on once one has.
        self._written_at = now

    def _is_due(self, every: timedelta, now: datetime) -> bool:
        return self._written_at is None or now - self._written_at >= every


def open_windows(log: DataFrame, view: Windowed, through: Batch) -> DataFrame:
    """The windows not closed after batch `through`, as a pure function of the log.

    The view's columns, `_through_batch`, `_day`.
    """
    watermark = through.after.watermark
    rows = log.where(F.col("_batch") <= through.number)
    # The first row of a session may lie far behind the last, which keeps it open.
    near = rows if kind_of(view).merges else possibly_in_windows_after(rows, view.of, view.window, watermark)
    results = aggregate(pairs(near, view), view)
    if watermark is not None:
        results = results.where(F.col("window_end") > literal(view.window.closed_by(watermark)))
    return results.withColumn("_through_batch", F.lit(through.number).cast("bigint"))


def shown_through(lake: Lake, view: Windowed) -> int:
    """The batch after which the open windows were last written; -1 where nothing tells."""
    table = open_side(lake, view, OPEN)
    written = None if table is None else table.transaction_version("through")
    return -1 if written is None else written


def read_open(spark: SparkSession, lake: Lake, view: Windowed) -> DataFrame:
    """The open windows as they were last written.

    Raises:
        OperatorError: the view keeps none, or has not run yet.
    """
    if lake.cut is not None:
        raise OperatorError(
            f"the open windows of view {view.name!r} are written whole each time, so there are none as of an older "
            "batch; read its current results as of one, or its open windows as they are now."
        )
    uri, table = lake.open(view), open_side(lake, view, OPEN)
    if table is None:
        raise OperatorError(
            f"view {view.name!r} has no table of open windows at {uri!r}; declare early='each batch' or an interval, "
            f"then run `tidemark run {view.of.name}`, or point TIDEMARK_HOME to the lake that has it."
        )
    return delta.read(spark, uri, table.version())


def _check_position(view: Windowed, table: DeltaTable | None) -> None:
    """Refuse a table of an older version of the platform, which does not say how far it is.

    Raises:
        OperatorError: with the way out.
    """
    if table is not None and not Progress.of(view, table).has_begun and table.get_add_actions().num_rows:
        raise OperatorError(
            f"the tables of view {view.name!r} are of an older version of Tidemark, which kept elsewhere how far they "
            f"are. Build them anew from the log, which stays as it is, with `tidemark rebuild {view.name}`."
        )


def _read_through(lake: Lake, view: Windowed) -> int:
    """The newest batch up to which all tables of the view follow the log; -1 for none."""
    at = [Progress.now(lake, view).batch]
    if view.window.merging:
        at.append(Progress.of(view, delta.open_table(lake.table(view, STATE))).batch)
    if view.updated:
        at.append(updated_through(lake, view))
    return min(at)


def _first_day(log: DataFrame, view: Windowed, since: date) -> date:
    """The first day of the sessions that rows of the day `since` or later are part of, or would touch."""
    sessions = kind_of(view).group(possible_pairs(log, view), view.by, [F.count(F.lit(1)).alias("rows")])
    touched = sessions.where(F.col(f"{WINDOW}.end") >= literal(datetime.combine(since, time.min, UTC)))
    first = touched.agg(F.to_date(F.min(f"{WINDOW}.start")).alias("day")).first()
    return since if first is None or first["day"] is None else min(first["day"], since)


def _described(analysis: Mapping[str, Any], lake: Lake, view: Windowed) -> dict[str, str]:
    first, state = delta.open_table(lake.first(view)), delta.open_table(lake.table(view, STATE))
    return {
        "results": _results(view),
        "computed": _computed(analysis, lake, view, Progress.of(view, first), Progress.of(view, state)),
        "state": "none" if state is None else f"{delta.size(lake.table(view, STATE)):,} bytes in {view.name}_{STATE}",
        "late rows": _late(lake, view),
    }


def _results(view: Windowed) -> str:
    keys = f" per {', '.join(view.by)}" if view.by else ""
    where = f", of the rows where {view.where}" if view.where else ""
    return f"{', '.join(view.values)}{keys} and window, {view.window.fingerprint}, over {view.of.name}{where}"


def _computed(analysis: Mapping[str, Any], lake: Lake, view: Windowed, at: Progress, folded: Progress) -> str:
    log = LogFiles(lake, view.of)
    if view.window.merging:
        parts = analysis["parts"] and signed_from(lake, view.of) is None
        what = "the parts of their aggregates" if parts else f"their rows, because {_untold(lake, view)}"
        return f"open sessions are kept in a table, with {what}; each step merges its rows into them"
    closing = "when the clock passes the end of a window, its rows are read from the log"
    if log.can_retract():
        return f"{closing}; they cannot be folded on the way, because some were taken back"
    # What an earlier build has analysed does not tell.
    is_by_arrow = analysis.get("by_spark") == ""
    by_arrow = (
        f"; up to {MOST_ROWS:,} of them are counted by Arrow at once, without a job of Spark" if is_by_arrow else ""
    )
    if not analysis["folds"]:
        return f"{closing}{by_arrow}; they cannot be folded on the way, because {_untold(lake, view)}"
    if view.window.overlap >= GATHERED_FROM:
        closing += " and put together by pane before they are counted in each window"
    closing += by_arrow
    waiting = reads_of(view, waiting_at(lake, view, log, folded.batch, at))
    reads = f"{waiting:,} reads of rows wait for it now, each row in {_window_in_words(view)}"
    if folded.batch < 0:
        return f"{closing}; {reads}, and from {FOLDED_FROM:,} on they are folded into panes"
    return f"rows up to batch {folded.batch} are folded into panes of partial aggregates; {reads}"


def _window_in_words(view: Windowed) -> str:
    return "one window" if view.window.overlap == 1 else f"at most {view.window.overlap} windows"


def _untold(lake: Lake, view: Windowed) -> str:
    """Why partial aggregates do not tell a view's values."""
    if view.function is not None:
        return "its function needs all of them"
    if view.distinct:
        return f"rows that agree in {', '.join(view.distinct)} count once"
    whole = [name for name, each in view.aggregates.items() if not each.parts]
    if whole:
        return f"{', '.join(whole)} cannot be put together from parts"
    if signed_from(lake, view.of) is not None:
        return f"rows of {view.of.name} can be taken back, so those that stand are counted together"
    return "its windows, or decimals made of doubles, cannot be put together from parts"


def _late(lake: Lake, view: Windowed) -> str:
    if view.late == "drop":
        return "are dropped from the results; they stay in the log"
    waits = "they wait for the correction of their day"
    if parted_from(lake, view):
        return f"{waits}, which is of all sessions that they were ever part of"
    if not view.updated:
        return waits
    if view.window.merging:
        again = "of the end of their session it is published again, as an update, once it is closed"
        return f"within {view.allowed_lateness} {again}; then {waits}"
    return f"within {view.allowed_lateness} they are counted at once, as updates; then {waits}"

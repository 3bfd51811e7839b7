"""Windowed views as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, ViewError, literal
from streaming.declare import STATE, Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, read_log
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    Progress,
    runtime_of,
)
from streaming.tables import delta
from streaming.views.kinds import kind_of
from streaming.views.late import duplicates, unassigned
from streaming.views.laws import ViewLaws
from streaming.views.open_windows import OpenWindows, read_open, shown_through
from streaming.views.panes import can_fold
from streaming.views.partial_results import partial_columns
from streaming.views.results import possible_pairs
from streaming.views.runtime import OverWindowsRuntime
from streaming.views.steps import (
    FOLDED_FROM,
    GATHERED_FROM,
    FoldedSteps,
    reads_of,
    results_columns,
    waiting_at,
)
from streaming.views.updates import Updates, read_updates, updated_through, updates_of
from streaming.windows import whole_days


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

    def described(self, spark: SparkSession) -> dict[str, str]:
        return _described(spark, self.lake, self.operator)

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
            raise ViewError(
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
    kept = partial_columns(view, results_columns(spark, view, {view.of.name: log}))
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

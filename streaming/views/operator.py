"""Windowed views as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, ORIGIN, ViewError, from_micros
from streaming.declare import CORRECTIONS, FAILED, UPDATES, Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, LogFiles, OperatorCounts, batches_after, head, read_log
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    Step,
    Written,
    check_declaration,
    rows_per_step,
    runtime_of,
    slices,
    versions_now,
)
from streaming.tables import delta
from streaming.views.corrections import correct, plan, read_corrections
from streaming.views.current import current_results
from streaming.views.explained import explain
from streaming.views.failures import failed
from streaming.views.first_results import read_first
from streaming.views.late import duplicates, late_pairs, unassigned
from streaming.views.laws import PinnedView, audit_view
from streaming.views.open_windows import OpenWindows, read_open, shown_through
from streaming.views.position import Position, check_position
from streaming.views.results import (
    aggregate,
    counted_by,
    counted_rows,
    has_windows,
    pairs,
    possibly_in_windows_after,
)
from streaming.views.retained import needs_since, read_through
from streaming.views.steps import FixedSteps, SessionSteps, ViewSteps
from streaming.views.updates import Updates, read_updates, updated_through, updates_of


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
        check_position(self.operator, delta.open_table(self.lake.first(self.operator)))

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        steps = self._steps_on(spark)
        behind = batches_after(self.lake, self.operator.of, steps.position().batch)
        for batches in slices(behind, rows_per_step(spark)):
            yield Step({self.operator.of.name: batches}, partial(self._step, steps, batches, now))

    def through(self) -> dict[str, int]:
        return {self.operator.of.name: Position.of(delta.open_table(self.lake.first(self.operator))).batch}

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
        return Position.of(delta.open_table(self.lake.first(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        view = self.operator
        return 0 if view.corrected else late_pairs(logs[view.of.name], view).count()

    def explain(self, spark: SparkSession) -> dict[str, str]:
        return explain(spark, self.lake, self.operator)

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
        return {self.operator.of.name: read_through(self.lake, self.operator)}

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        return needs_since(spark, self.lake, self.operator, since[stream.name])

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
        view, newest = self.operator, head(self.lake, self.operator.of)
        at = Position.of(delta.open_table(self.lake.first(view)))
        if self.lake.cut is not None:
            at = Position() if newest is None else Position().after(newest)
        rows = failed(read_log(spark, self.lake, view.of), self.lake, view, at)
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

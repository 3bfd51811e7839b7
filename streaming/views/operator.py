"""Windowed views as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import WINDOW, ViewError, from_micros, literal
from streaming.declare import Stream, Windowed
from streaming.lake import Lake
from streaming.log import Batch, OperatorCounts, read_log
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    ReadPosition,
    RunContext,
    check_declaration,
    runtime_of,
)
from streaming.spark import check_checkpoint
from streaming.views.bootstrap import bootstrap_view, has_started
from streaming.views.corrections import correct, plan, read_corrections
from streaming.views.current import current_results
from streaming.views.first_results import FirstResults, first_results, read_first
from streaming.views.late import duplicates, late_pairs, unassigned
from streaming.views.laws import PinnedView, audit_view
from streaming.views.open_windows import OpenWindows, read_open
from streaming.views.position import position
from streaming.views.results import counted_rows, pairs, possibly_in_windows_after
from streaming.views.updates import read_updates, update


@runtime_of.register
def _(operator: Windowed, lake: Lake) -> OperatorRuntime:
    return WindowedRuntime(operator, lake)


class WindowedRuntime(OperatorRuntime):
    """A windowed view runs as a streaming query with Spark's state; its corrections are batch reads of the log."""

    operator: Windowed

    def __init__(self, view: Windowed, lake: Lake) -> None:
        self.operator = view
        self.lake = lake
        self._open_windows = OpenWindows(lake, view)

    def has_started(self) -> bool:
        return has_started(self.lake, self.operator)

    def check(self) -> None:
        check_declaration(self.lake, self.operator)
        check_checkpoint(
            self.lake.first(self.operator),
            self.lake.operator_checkpoint(self.operator),
            f"Views are functions of the log: `tidemark rebuild {self.operator.name}` builds this one anew from it.",
        )

    def bootstrap(self, context: RunContext, head: Batch) -> int:
        return bootstrap_view(context.spark, self.lake, self.operator, head, context.now)

    def plan_query(self, context: RunContext, **trigger: Any) -> Callable[[], StreamingQuery]:
        view, lake = self.operator, self.lake
        groups = first_results(context.spark, lake, view)
        run_batch = context.around(view.name, FirstResults(context.spark, lake, view, context.now, context.on_rows))
        return (
            groups.writeStream.queryName(f"{view.folder}.{view.name}")
            .option("checkpointLocation", lake.operator_checkpoint(view))
            .trigger(**trigger)
            .foreachBatch(run_batch)
            .start
        )

    def counts(self, stream: Stream) -> OperatorCounts | None:
        view, time = self.operator, F.col(stream.event_time)
        counted = counted_rows(view)
        return OperatorCounts(
            late=F.when(counted, view.window.late_windows(time, F.col("_watermark"))),
            unassigned=F.when(counted, view.window.has_no_window(time)),
        )

    def closes_between(self, before: datetime, after: datetime) -> bool:
        return self.operator.window.ends_between(before, after)

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        view = self.operator
        window_end = F.col(f"{WINDOW}.end")
        candidates = pairs(possibly_in_windows_after(rows, view, watermark), view)
        still_open = candidates.where(window_end > literal(view.window.closed_by(watermark)))
        latest = still_open.agg(F.unix_micros(F.max(window_end))).first()
        return None if latest is None or latest[0] is None else from_micros(latest[0])

    def after_batch(self, context: RunContext, batch: Batch) -> None:
        self._open_windows.write_if_due(context.spark, batch, context.now())

    def keep_up(self, context: RunContext, head: Batch) -> None:
        update(context.spark, self.lake, self.operator, context.now)
        self.after_batch(context, head)

    def catch_up(self, context: RunContext, head: Batch) -> None:
        update(context.spark, self.lake, self.operator, context.now)
        self._open_windows.write(context.spark, head, context.now())

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
            "unassigned": lambda spark: unassigned(read_log(spark, self.lake, view.of), view),
            "duplicates": lambda spark: duplicates(read_log(spark, self.lake, view.of), view).orderBy(
                "window_start", *view.by
            ),
        }

    def position(self) -> ReadPosition | None:
        return position(self.lake, self.operator)

    def plan(self, spark: SparkSession) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator)

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        return correct(spark, self.lake, self.operator, days, now, on_day)

    def pin(self, spark: SparkSession) -> PinnedView:
        return PinnedView.now(spark, self.lake, self.operator)

    def laws(self, spark: SparkSession, pinned: PinnedView, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        return audit_view(spark, self.lake, pinned, logs[self.operator.of.name])

    def _current(self, spark: SparkSession) -> DataFrame:
        view, lake = self.operator, self.lake
        corrections, updates = read_corrections(spark, lake, view), read_updates(spark, lake, view)
        current = current_results(read_first(spark, lake, view), corrections, view, updates)
        return current.orderBy("window_start", *view.by)

    def _late(self, spark: SparkSession) -> DataFrame:
        view = self.operator
        columns = ("window_start", "window_end", "_watermark", "_batch", *view.of.columns)
        return late_pairs(read_log(spark, self.lake, view.of), view).select(*columns)

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

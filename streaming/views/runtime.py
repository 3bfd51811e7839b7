"""Operators over windows as the rooms above know them: what is the same of one log and of several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime
from typing import Any, Generic, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import WINDOW, ViewError, from_micros, literal, told
from streaming.declare import CORRECTIONS, FAILED, UPDATES, OverWindows, Stream
from streaming.log import OperatorCounts, read_log, valid
from streaming.operators import (
    Finding,
    LogAtVersion,
    PendingDay,
    PinnedTables,
    Progress,
    SteppedRuntime,
    built_anew,
    versions_now,
)
from streaming.tables import delta
from streaming.views.computation import computation_of
from streaming.views.corrections import correct, logs_of, plan, read_corrections
from streaming.views.current import current_results, pinned_windows, read_first
from streaming.views.laws import WindowLaws
from streaming.views.results import possibly_in_windows_after
from streaming.views.steps import FixedSteps, SessionSteps, WindowSteps
from streaming.views.updates import read_updates

Of = TypeVar("Of", bound=OverWindows)


class OverWindowsRuntime(SteppedRuntime[Of, WindowSteps[Of]], Generic[Of]):
    """An operator over windows runs in steps over its logs; its corrections are batch reads of them."""

    fixed_steps: type[FixedSteps[Any]] = FixedSteps
    """Its steps where windows do not merge."""

    def analyse(self, logs: Mapping[str, DataFrame]) -> None:
        computation = computation_of(self.operator)
        _ = computation.results(computation.pairs(logs)).schema

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
        )

    def watermark_at(self, version: int) -> datetime | None:
        return Progress.of(self.operator, delta.open_table(self.lake.table(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        return 0 if self.operator.corrected else computation_of(self.operator).pairs(logs).where("_late").count()

    def plan(self, spark: SparkSession) -> list[PendingDay]:
        return plan(spark, self.lake, self.operator)

    def plan_at(self, spark: SparkSession, logs: Mapping[str, int], corrections: int) -> list[PendingDay]:
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
            raise ViewError(
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

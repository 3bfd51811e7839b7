"""Window joins and co-groups as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ORIGIN, WINDOW, ViewError, earlier, from_micros, literal, told
from streaming.declare import CORRECTIONS, FAILED, STATE, CoGrouped, Stream, TwoSided, described
from streaming.joins.windows_corrections import correct, numbered, read_corrections
from streaming.joins.windows_failures import failed
from streaming.joins.windows_first import read_first
from streaming.joins.windows_late import counts, late_pairs, logs_of
from streaming.joins.windows_laws import audit_two_sided
from streaming.joins.windows_plan import plan
from streaming.joins.windows_results import finish
from streaming.joins.windows_rows import group, pairs
from streaming.joins.windows_steps import WindowSteps
from streaming.lake import Lake
from streaming.log import OperatorCounts, read_log, valid
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PendingDay,
    PinnedTables,
    Progress,
    SteppedRuntime,
    built_anew,
    runtime_of,
)
from streaming.tables import delta
from streaming.views import current_results


@runtime_of.register
def _(operator: TwoSided, lake: Lake) -> OperatorRuntime:
    return TwoSidedRuntime(operator, lake)


class TwoSidedRuntime(SteppedRuntime[TwoSided, WindowSteps]):
    """It runs in steps over both logs; its corrections are batch reads of them."""

    def analyse(self, logs: Mapping[str, DataFrame]) -> None:
        _ = finish(group(pairs(self.operator, logs), self.operator), self.operator).schema

    def counts(self, stream: Stream) -> OperatorCounts | None:
        return counts(self.operator, stream)

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The latest end of a window that is open, over both logs: each has to be past it."""
        operator, spark = self.operator, rows.sparkSession
        others = (other for other in operator.reads if other != stream and delta.exists(self.lake.log(other)))
        logs = {stream.name: rows} | {other.name: valid(read_log(spark, self.lake, other)) for other in others}
        if len(logs) < len(operator.reads):
            return None
        earliest = earlier(watermark, operator.window.reach)
        if earliest is not None:
            near = {each.name: F.col(f"`{each.event_time}`") >= literal(earliest) for each in operator.reads}
            logs = {name: log.where(near[name]) for name, log in logs.items()}
        window_end = F.col(f"{WINDOW}.end")
        still_open = pairs(operator, logs).where(window_end > literal(operator.window.closed_by(watermark)))
        latest = still_open.agg(F.unix_micros(F.max(window_end))).first()
        return None if latest is None or latest[0] is None else from_micros(latest[0])

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {
            "current": self._current,
            "first": lambda spark: read_first(spark, self.lake, self.operator).orderBy("window_start", *self._by),
            "late": lambda spark: late_pairs(self.operator, logs_of(spark, self.lake, self.operator)),
            "corrections": self._corrections,
            **({FAILED: self._failed} if self.operator.diverts else {}),
        }

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return read_first(spark, self.lake, self.operator, version)

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        return read_corrections(spark, self.lake, self.operator, version)

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        corrections = read_corrections(spark, self.lake, self.operator, versions.get(CORRECTIONS, delta.BEFORE))
        first = read_first(spark, self.lake, self.operator, versions[""])
        return current_results(first, numbered(corrections), self.operator)

    def watermark_at(self, version: int) -> datetime | None:
        return Progress.of(self.operator, delta.open_table(self.lake.table(self.operator), version)).watermark

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        return 0 if self.operator.corrected else late_pairs(self.operator, logs).count()

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        # A row of either side may still come into a window with rows of the other one.
        if any(each.name not in since for each in self.operator.reads):
            return None
        return self.operator.window.needed_since(min(since[each.name] for each in self.operator.reads))

    def why_all(self, stream: Stream) -> str:
        return "has windows of two streams, of which only the rows tell how far back they reach"

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        return self.operator.window.whole_since(super().whole_since(dropped))

    def described(self, spark: SparkSession) -> dict[str, str]:
        return _described(self.lake, self.operator)

    def position(self) -> str:
        return _position(Progress.now(self.lake, self.operator), Progress.at_heads(self.lake, self.operator))

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

    def pin(self, spark: SparkSession) -> PinnedTables[TwoSided]:
        # Corrections count also where the declaration makes none any more.
        return PinnedTables.now(self.lake, self.operator, CORRECTIONS)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[TwoSided], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_two_sided(spark, self.lake, pinned, logs)

    @property
    def _by(self) -> tuple[str, ...]:
        return self.operator.by

    def _current(self, spark: SparkSession) -> DataFrame:
        return self.current_at(spark, self.pin(spark).versions).orderBy("window_start", *self._by)

    def _failed(self, spark: SparkSession) -> DataFrame:
        logs = logs_of(spark, self.lake, self.operator)
        rows = failed(logs, self.lake, self.operator, Progress.as_read(self.lake, self.operator))
        return rows.orderBy("_left_batch", "_right_batch", ORIGIN, "window_start", "row")

    def _corrections(self, spark: SparkSession) -> DataFrame:
        corrections = read_corrections(spark, self.lake, self.operator)
        if corrections is None:
            raise ViewError(
                f"{self.operator.kind_name} {self.operator.name!r} has no corrections at "
                f"{self.lake.corrections(self.operator)!r} yet; run `tidemark correct {self.operator.folder}` first, "
                "or point TIDEMARK_HOME to the lake that has them."
            )
        return corrections.orderBy("window_start", *self._by)

    def _begun(self, spark: SparkSession) -> WindowSteps:
        steps = WindowSteps(spark, self.lake, self.operator)
        steps.repair()
        return steps


def _described(lake: Lake, operator: TwoSided) -> dict[str, str]:
    state = delta.open_table(lake.table(operator, STATE)) if operator.window.merging else None
    keys = ", ".join(ours if ours == theirs else f"{ours} = {theirs}" for ours, theirs in operator.sides_on.items())
    what = f"what {described(operator.function)} gives" if isinstance(operator, CoGrouped) else "pairs"
    waits = "they wait for the correction of their window's day"
    return {
        "results": f"{what} of {operator.left.name} (left) and {operator.right.name} (right) by {keys} and window, "
        f"{operator.window.fingerprint}",
        "computed": "open sessions are kept in a table, with their rows; each step merges its rows into them"
        if operator.window.merging
        else "when the clocks of both logs have passed the end of a window, its rows are read from the logs",
        "state": "none"
        if state is None
        else f"{delta.size(lake.table(operator, STATE)):,} bytes in {operator.table_name(STATE)}",
        "late rows": "are dropped from the results; they stay in the logs" if operator.late == "drop" else waits,
    }


def _position(at: Progress, heads: Progress) -> str:
    places = []
    for name, number in at.through.items():
        clock = told(at.watermarks[name])
        places.append(f"batch {number:,} of {heads.through[name]:,} of {name}, watermark {clock}")
    return f"{'; '.join(places)}{built_anew(at.generation)}"

"""Keyed functions as an operator: what the rooms above know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import ViewError, from_micros, literal
from streaming.clocks import latest
from streaming.declare import FAILED, LATE, STATE, Keyed, Stream
from streaming.keyed.explained import explain
from streaming.keyed.frame import is_on_time
from streaming.keyed.laws import PinnedKeyed, audit_keyed
from streaming.keyed.schemas import AT, WRITTEN_AT
from streaming.keyed.source_text import changed_text
from streaming.keyed.steps import KeyedSteps
from streaming.lake import Lake
from streaming.log import LogFiles, OperatorCounts, batches_after, head, read_log, valid
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    Step,
    check_declaration,
    generation_of,
    open_side,
    runtime_of,
    slices,
)
from streaming.sources import PlacedRows, check_has_side, placed_rows
from streaming.tables import delta

_ROWS_PER_CORE = 1_000_000
"""How much of the log one step takes at most, however far the function is behind."""

_log = logging.getLogger("tidemark")


@runtime_of.register
def _(operator: Keyed, lake: Lake) -> OperatorRuntime:
    return KeyedRuntime(operator, lake)


@placed_rows.register
def _(of: Keyed, lake: Lake, side: str) -> PlacedRows:
    check_has_side(of.name, "keyed function", side, of.output_schemas)
    return PlacedRows(
        uri=lake.table(of, side),
        # Each step writes a later instant than the one before it.
        unit=WRITTEN_AT,
        unit_name="step of",
        written=WRITTEN_AT,
        at=AT,
        made_by=f"run `tidemark run {of.folder}` first, so that it has results",
        order=(AT, *of.by),
        generation=generation_of,
    )


class KeyedRuntime(OperatorRuntime):
    """A keyed function runs in steps over its log, from a table of state to the next."""

    operator: Keyed

    def __init__(self, keyed: Keyed, lake: Lake) -> None:
        self.operator = keyed
        self.lake = lake
        self._steps: KeyedSteps | None = None

    def check(self) -> None:
        check_declaration(self.lake, self.operator)
        warning = changed_text(self.operator, delta.open_table(self.lake.table(self.operator, STATE)))
        if warning is not None:
            _log.warning(warning)

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        steps = self._steps_on(spark)
        behind = batches_after(self.lake, self.operator.of, steps.position().batch)
        while behind:
            # Where a step died between two of its commits, the next one ends where that one was to end.
            end = steps.next_end()
            until = len(behind) if end is None else sum(batch.number <= end for batch in behind)
            for batches in slices(behind[:until], _ROWS_PER_CORE * spark.sparkContext.defaultParallelism):
                yield Step({self.operator.of.name: batches}, partial(steps.step, batches, now))
            behind = behind[until:]

    def counts(self, stream: Stream) -> OperatorCounts | None:
        if self.operator.order == "arrival":
            return None
        late = F.when(F.col("_day").isNotNull() & ~is_on_time(self.operator), F.lit(1))
        return OperatorCounts(late=late, unassigned=F.lit(False), by="late rows")

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        newest, time = head(self.lake, stream), F.col(stream.event_time)
        assert newest is not None
        waiting = None
        if self.operator.order == "event":
            greatest = rows.where(time >= literal(watermark)).agg(F.unix_micros(F.max(time))).first()
            assert greatest is not None
            # A row comes once the clock has passed it.
            waiting = None if greatest[0] is None else from_micros(greatest[0] + 1)
        clock = latest(waiting, watermark)
        assert clock is not None
        return latest(waiting, self._steps_on(rows.sparkSession).latest_due(newest.number, clock))

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        keyed = self.operator
        late = {LATE: self._late} if keyed.order == "event" else {}
        failed = {FAILED: partial(self._read, FAILED)} if keyed.on_error == "side" else {}
        return {
            "current": lambda spark: self._read("", spark),
            **{side: partial(self._read, side) for side in keyed.sides},
            **failed,
            **late,
            STATE: lambda spark: self._read(STATE, spark),
        }

    def explain(self, spark: SparkSession) -> dict[str, str]:
        return explain(self.lake, self.operator)

    def pin(self, spark: SparkSession) -> PinnedKeyed:
        return PinnedKeyed.now(self.lake, self.operator)

    def laws(self, spark: SparkSession, pinned: PinnedKeyed, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        return audit_keyed(spark, self.lake, pinned, logs[self.operator.of.name])

    def refresh(self) -> None:
        self._steps = None

    def _read(self, suffix: str, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        table = open_side(self.lake, keyed, suffix) if suffix else delta.open_table(self.lake.table(keyed))
        if table is None:
            raise ViewError(
                f"keyed function {keyed.name!r} has no table {self.lake.table(keyed, suffix)!r} yet; run `tidemark run "
                f"{keyed.of.name}` first, or point TIDEMARK_HOME to the lake that has it."
            )
        rows = delta.read(spark, self.lake.table(keyed, suffix), table.version())
        keys = [f"`{name}`" for name in keyed.by]
        return rows.orderBy(*keys) if suffix == STATE else rows.orderBy(AT, *keys)

    def _late(self, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        late = valid(read_log(spark, self.lake, keyed.of)).where(~is_on_time(keyed))
        return late.select("_watermark", "_batch", *(f"`{name}`" for name in keyed.of.columns))

    def _steps_on(self, spark: SparkSession) -> KeyedSteps:
        # Kept, because it knows the files of the log.
        if self._steps is None:
            steps = KeyedSteps(spark, self.lake, self.operator, LogFiles(self.lake, self.operator.of))
            steps.repair()
            self._steps = steps
        return self._steps

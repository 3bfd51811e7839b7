"""Keyed functions as an operator: what the rooms above know of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial, reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, WRITTEN_AT, from_micros, literal
from streaming.clocks import latest
from streaming.declare import FAILED, LATE, STATE, Keyed, Stream
from streaming.keyed.compatible import counts_as
from streaming.keyed.explained import explain
from streaming.keyed.frame import is_on_time
from streaming.keyed.laws import audit_keyed
from streaming.keyed.migration import check_whole
from streaming.keyed.reached import Reached
from streaming.keyed.source_text import changed_text
from streaming.keyed.steps import KeyedSteps
from streaming.lake import Lake
from streaming.log import OperatorCounts, read_log, valid
from streaming.operators import (
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    SteppedRuntime,
    check_declaration,
    generation_of,
    require_table,
    runtime_of,
    version_read,
)
from streaming.sources import PlacedRows, check_has_side, placed_rows
from streaming.tables import delta

_log = logging.getLogger("tidemark")

_MIGRATE = (
    ", or, where its state or version changed and no timer is gone, raise `version` and declare `migrate`, a function "
    "from the old state to the new"
)


@runtime_of.register
def _(operator: Keyed, lake: Lake) -> OperatorRuntime:
    return KeyedRuntime(operator, lake)


@placed_rows.register
def _(of: Keyed, lake: Lake, side: str) -> PlacedRows:
    check_has_side(of.name, of.kind_name, side, of.output_schemas)
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


class KeyedRuntime(SteppedRuntime[Keyed, KeyedSteps]):
    """A keyed function runs in steps over its logs, from a table of state to the next."""

    reached = Reached

    def check(self) -> None:
        check_declaration(self.lake, self.operator, partial(counts_as, self.operator), _MIGRATE)
        check_whole(self.lake, self.operator)
        warning = changed_text(self.operator, delta.open_table(self.lake.table(self.operator, STATE)))
        if warning is not None:
            _log.warning(warning)

    def counts(self, stream: Stream) -> OperatorCounts | None:
        if self.operator.order == "arrival" or stream not in self.operator.streams:
            return None
        late = F.when(F.col("_day").isNotNull() & ~is_on_time(stream), F.lit(1))
        return OperatorCounts(late=late, unassigned=F.lit(False), by="late rows")

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        reached = Reached.at_heads(self.lake, self.operator).watermark
        if stream not in self.operator.streams or reached is None:
            return None
        waiting = None if self.operator.order == "arrival" else self._waiting(stream, rows, reached)
        clock = latest(waiting, reached)
        assert clock is not None
        return latest(waiting, self._steps_on(rows.sparkSession).latest_due(clock))

    def _waiting(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The clock that passes every row which waits for it, in the `rows` of the stream's log and in the others'."""
        found = []
        for each in self.operator.streams:
            log = rows if each == stream else valid(read_log(rows.sparkSession, self.lake, each))
            time = F.col(each.event_time)
            waits = log.where((time >= literal(watermark)) & is_on_time(each))
            found += waits.agg(F.unix_micros(F.max(time))).collect()
        # A row comes once the clock has passed it.
        return max((from_micros(row[0] + 1) for row in found if row[0] is not None), default=None)

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

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Keyed], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_keyed(spark, self.lake, pinned, logs)

    def _read(self, suffix: str, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        table = require_table(self.lake, keyed, suffix)
        rows = delta.read(spark, self.lake.table(keyed, suffix), version_read(self.lake, keyed, table))
        keys = [f"`{name}`" for name in keyed.by]
        return rows.orderBy(*keys) if suffix == STATE else rows.orderBy(AT, *keys)

    def _late(self, spark: SparkSession) -> DataFrame:
        keyed = self.operator
        parts = [
            valid(read_log(spark, self.lake, stream))
            .where(~is_on_time(stream))
            .select(
                *([] if len(keyed.streams) == 1 else [F.lit(stream.name).alias("_stream")]),
                *("_watermark", "_batch"),
                *(f"`{name}`" for name in stream.columns),
            )
            for stream in keyed.streams
        ]
        return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)

    def _begun(self, spark: SparkSession) -> KeyedSteps:
        steps = KeyedSteps(spark, self.lake, self.operator)
        steps.repair()
        migrated = steps.migrate()
        if migrated is not None:
            _log.warning(migrated)
        return steps

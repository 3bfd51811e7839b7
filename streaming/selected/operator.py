"""Selections as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, ORIGIN
from streaming.declare import ELEMENT, Selected
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import (
    FilterCounts,
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    Reached,
    SteppedRuntime,
    check_followed,
    open_side,
    require_table,
    rows_by_batch,
    runtime_of,
    version_through,
)
from streaming.selected.explained import explain
from streaming.selected.laws import audit_selected
from streaming.selected.steps import SelectedSteps
from streaming.sources import PlacedRows, placed_rows
from streaming.tables import delta


@runtime_of.register
def _(operator: Selected, lake: Lake) -> OperatorRuntime:
    return SelectedRuntime(operator, lake)


@placed_rows.register
def _(of: Selected, lake: Lake, side: str) -> PlacedRows:
    return rows_by_batch(of, lake, side)


class SelectedRuntime(SteppedRuntime[Selected, SelectedSteps]):
    """A selection runs in steps over its logs; nothing is kept from one to the next."""

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {to or "current": partial(self.read, to) for to in self.operator.outputs}

    def filtered(self) -> Mapping[str, FilterCounts]:
        """What the filters of its outputs did."""
        own = delta.open_table(self.lake.table(self.operator))
        if own is None:
            return {}
        filters = (to for to, side in self.operator.outputs.items() if side.where is not None)
        tables = {to: open_side(self.lake, self.operator, to) if to else own for to in filters}
        return {to: Reached.of(self.operator, table).counts for to, table in tables.items()}

    def explain(self, spark: SparkSession) -> dict[str, str]:
        return explain(self.lake, self.operator)

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Selected], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_selected(spark, self.lake, pinned, logs)

    def read(self, suffix: str, spark: SparkSession) -> DataFrame:
        """The rows of an output, in the order of the log.

        Raises:
            ViewError: nothing is selected yet.
        """
        selected = self.operator
        rows = self._as_of(spark, suffix, require_table(self.lake, selected, suffix))
        return rows.orderBy(BATCH, ORIGIN, *([ELEMENT] if selected.makes_many(suffix) else []))

    def _as_of(self, spark: SparkSession, suffix: str, table: DeltaTable) -> DataFrame:
        """The rows of an open output, up to the batches as of which the lake is read."""
        selected, uri = self.operator, self.lake.table(self.operator, suffix)
        if self.lake.cut is None:
            return delta.read(spark, uri, table.version())
        if len(selected.reads) > 1:
            return delta.read(spark, uri, version_through(self.lake, selected, table))
        newest = head(self.lake, selected.reads[0])
        check_followed(selected, Reached.of(selected, table).batch, newest)
        return delta.read(spark, uri, table.version()).where(F.col(BATCH) <= (-1 if newest is None else newest.number))

    def _begun(self, spark: SparkSession) -> SelectedSteps:
        return SelectedSteps(spark, self.lake, self.operator)

"""Selections as an operator: what the rooms above know of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import BATCH, ORIGIN, counted
from streaming.declare import ELEMENT, Selected, Stream
from streaming.lake import Lake
from streaming.log import head
from streaming.operators import (
    FilterCounts,
    Finding,
    LogAtVersion,
    OperatorRuntime,
    PinnedTables,
    Progress,
    SteppedRuntime,
    built_anew,
    check_followed,
    open_side,
    require_table,
    rows_by_batch,
    runtime_of,
    version_read,
    versions_now,
)
from streaming.selected.frame import outputs_of, select_all
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

    def analyse(self, logs: Mapping[str, DataFrame]) -> None:
        _ = select_all(self.operator, logs).schema

    @property
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        return {to or "current": partial(self.read, to) for to in outputs_of(self.operator)}

    def filtered(self) -> Mapping[str, FilterCounts]:
        """The counts of the filters of its outputs."""
        own = delta.open_table(self.lake.table(self.operator))
        if own is None:
            return {}
        filters = (to for to, side in self.operator.outputs.items() if side.where is not None)
        tables = {to: open_side(self.lake, self.operator, to) if to else own for to in filters}
        return {to: Progress.of(self.operator, table).counts for to, table in tables.items()}

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        return since[stream.name]

    def described(self, spark: SparkSession) -> dict[str, str]:
        return _described(self.lake, self.operator)

    def position(self) -> str:
        return _position(self.lake, self.operator)

    def versions(self) -> Mapping[str, int]:
        # Of one log, rows as of an older batch are told by themselves.
        return super().versions() if len(self.operator.reads) > 1 else versions_now(self.lake, self.operator)

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        return self._rows(spark, "", version)

    def pin(self, spark: SparkSession) -> PinnedTables[Selected]:
        return PinnedTables(self.operator, self.versions())

    def laws(
        self, spark: SparkSession, pinned: PinnedTables[Selected], logs: Mapping[str, LogAtVersion]
    ) -> Iterator[Finding]:
        return audit_selected(spark, self.lake, pinned, logs)

    def read(self, suffix: str, spark: SparkSession) -> DataFrame:
        """The rows of an output, in the order of the log.

        Raises:
            OperatorError: nothing is selected yet.
        """
        selected = self.operator
        table = require_table(self.lake, selected, suffix)
        of_one = len(selected.reads) == 1
        version = table.version() if of_one else version_read(self.lake, selected, table)
        rows = self._rows(spark, suffix, version)
        return rows.orderBy(BATCH, ORIGIN, *([ELEMENT] if selected.makes_many(suffix) else []))

    def _rows(self, spark: SparkSession, suffix: str, version: int) -> DataFrame:
        """The rows of an output at a version, up to the batches as of which the lake is read."""
        selected, rows = self.operator, delta.read(spark, self.lake.table(self.operator, suffix), version)
        if self.lake.cut is None or len(selected.reads) > 1:
            return rows
        newest = head(self.lake, selected.reads[0])
        table = delta.open_table(self.lake.table(selected, suffix), version)
        check_followed(selected, Progress.of(selected, table).batch, newest)
        return rows.where(F.col(BATCH) <= (-1 if newest is None else newest.number))

    def _begun(self, spark: SparkSession) -> SelectedSteps:
        return SelectedSteps(spark, self.lake, self.operator)


def _described(lake: Lake, selected: Selected) -> dict[str, str]:
    streams = " and ".join(stream.name for stream in selected.reads)
    function = "" if selected.function is None else f", then {selected.function.name}"
    tables = {
        to or "results": f"{'; '.join(side.fingerprint)}{'' if to else function}. {_counts(lake, selected, to)}"
        for to, side in selected.outputs.items()
    }
    return {
        **tables,
        "computed": f"valid rows of {streams} one by one, late or not; a step writes all outputs in one pass",
    }


def _counts(lake: Lake, selected: Selected, to: str) -> str:
    counts = Progress.of(selected, delta.open_table(lake.table(selected, to))).counts
    return f"{counted(counts.rows_in, 'row')} in, {counts.kept:,} kept, {counts.removed:,} removed"


def _position(lake: Lake, selected: Selected) -> str:
    at = Progress.of(selected, delta.open_table(lake.table(selected)))
    places = []
    for stream in selected.reads:
        newest = head(lake, stream)
        assert newest is not None
        place = f"batch {at.through[stream.name]:,} of {newest.number:,}"
        places.append(place if len(selected.reads) == 1 else f"{place} of {stream.name}")
    return f"{', '.join(places)}{built_anew(at.generation)}"

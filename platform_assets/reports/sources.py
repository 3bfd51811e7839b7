"""The sources of a report: the pinned versions, and nothing newer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property, reduce

from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from platform_assets.reports.errors import DimensionError
from quality import (
    Pin,
    Pins,
    operators_read,
    role_of_corrections,
    role_of_log,
    role_of_updates,
    streams_read,
)
from streaming.base import BATCH, DeclarationError, NotBuiltYet, literal
from streaming.declare import Operator, Pipeline, Stream, TableSpec, Windowed
from streaming.lake import Lake
from streaming.log import ever_rejected, read_log, standing, valid
from streaming.operators import Progress, runtime_of
from streaming.revisions import net
from streaming.tables import delta
from streaming.views import read_updates


@dataclass(frozen=True)
class Sources:
    """The tables of a pipeline, and the dimensions, at exactly the pinned versions, as batch frames.

    Of a lake with a cut they are as of its batches. `reads`: the operators and streams that there are for it, all of
    the pipeline where nothing is named.
    """

    spark: SparkSession
    lake: Lake
    pipeline: Pipeline
    pins: Pins
    dimensions: Mapping[str, Pin] = field(default_factory=dict)
    reads: Collection[Operator | Stream] = ()

    @cached_property
    def log(self) -> DataFrame:
        """The event log of the first stream."""
        return self.log_of(self.pipeline.stream)

    def log_of(self, stream: Stream) -> DataFrame:
        """The rows of a stream that arrived, valid or rejected: its event log without the heartbeats of its clock.

        Of a stream whose rows can be taken back, its valid rows are those that stand.

        Raises:
            DeclarationError: the report declares that it reads others; likewise of operators.
        """
        self._check_reads(stream, streams_read(self.pipeline, self.reads))
        log = self._log_of(stream)
        if not stream.takes_back:
            return standing(log)
        # Of a stream with a key the rejected rows are in the log of what came, which has no signs.
        return net(log).unionByName(ever_rejected(self._log_of(stream.revisions)), allowMissingColumns=True)

    def _log_of(self, stream: Stream) -> DataFrame:
        log = read_log(self.spark, self.lake, stream, self._require(role_of_log(self.pipeline, stream)).version)
        return log.where(F.col("_origin").isNotNull())

    def first(self, operator: Operator) -> DataFrame:
        """The operator's own table: of views, window joins and co-groups the first results, of a join its pairs."""
        self._check_reads(operator, self._operators)
        return runtime_of(operator, self.lake).first_at(self.spark, self._require(operator.name).version)

    def output(self, operator: Operator, suffix: str) -> DataFrame:
        """Another table of the operator that holds results, such as the `unmatched` rows of a join."""
        self._check_reads(operator, self._operators)
        rows = self._read(operator.table_name(suffix))
        newest = self.lake.batch_read(operator.reads[0]) if len(operator.reads) == 1 else None
        # Where rows tell their batch, newer ones may be there as of an older batch; other tables have a version of it.
        return rows if newest is None or BATCH not in rows.columns else rows.where(F.col(BATCH) <= newest)

    def corrections(self, operator: Operator) -> DataFrame | None:
        """The corrections of an operator, or None while there are none."""
        self._check_reads(operator, self._operators)
        if not operator.corrected:
            return None
        version = self._version(role_of_corrections(operator.name))
        return runtime_of(operator, self.lake).corrections_at(self.spark, version)

    def updates(self, view: Windowed) -> DataFrame | None:
        """The updates of a view, or None while there are none."""
        self._check_reads(view, self._operators)
        if not view.updated:
            return None
        return read_updates(self.spark, self.lake, view, self._version(role_of_updates(view.name)))

    def current(self, operator: Operator) -> DataFrame:
        """The current results: first results overlaid with updates and corrections, pairs with rows that have none."""
        self._check_reads(operator, self._operators)
        self._require(operator.name)
        versions = {table.suffix: self._version(operator.table_name(table.suffix)) for table in _results(operator)}
        return runtime_of(operator, self.lake).current_at(self.spark, versions)

    def dimension(self, name: str) -> DataFrame:
        """A dimension of the report.

        Raises:
            DimensionError: the report declares none of that name.
        """
        if name not in self.dimensions:
            declared = ", ".join(self.dimensions) or "none"
            raise DimensionError(
                f"the report has no dimension {name!r}, it has: {declared}.",
                "Declare it: Report(..., dimensions=(...,)).",
            )
        return self.dimensions[name].read(self.spark)

    @cached_property
    def footnotes(self) -> tuple[str, ...]:
        """The notes that a reader of these numbers must know: late rows that the declaration leaves out."""
        notes = []
        for operator in self._operators:
            logs = {stream.name: self._log_of(stream) for stream in operator.reads}
            dropped = runtime_of(operator, self.lake).left_out(self.spark, logs)
            if dropped:
                notes.append(f"{operator.name}: {dropped:,} late rows are not counted, as declared with late='drop'.")
        return tuple(notes)

    @cached_property
    def finished_days(self) -> tuple[date, ...]:
        """The days with valid rows, oldest first, of which every window that ends with them is published as pinned.

        Of pairs and rows without one it is all that the joint clock has passed.
        """
        timed = [of for of in self._operators if of.is_timed]
        pinned = [(operator, self.pins.pin(operator.name)) for operator in timed]
        if self.lake.cut is None:
            marks = [runtime_of(of, self.lake).watermark_at(pin.version) for of, pin in pinned if pin is not None]
        else:
            marks = [Progress.at_heads(self.lake, operator).watermark for operator in timed]
        reached = [mark for mark in marks if mark is not None]
        if len(reached) < len(marks) or not reached:
            return ()
        streams = dict.fromkeys(stream for operator in timed for stream in operator.reads)
        days = reduce(DataFrame.union, [valid(self._log_of(stream)).select("_day") for stream in streams]).distinct()
        over = days.where(F.date_add("_day", 1).cast("timestamp") <= literal(min(reached)))
        return tuple(row["_day"] for row in over.orderBy("_day").collect())

    @cached_property
    def replaced(self) -> tuple[Pin, ...]:
        """The pins in whose place another table lies by now, which was built after its forerunner was dropped."""
        return tuple(pin for pin in (*self.pins.tables, *self.dimensions.values()) if _is_replaced(pin))

    @property
    def _operators(self) -> tuple[Operator, ...]:
        return operators_read(self.pipeline, self.reads)

    def _check_reads(self, read: Operator | Stream, declared: Collection[Operator | Stream]) -> None:
        if self.reads and read not in declared:
            raise DeclarationError(
                f"the report reads {read.name!r} and declares that it reads only "
                f"{', '.join(repr(each.name) for each in self.reads)}",
                "add it: Report(..., reads=(...,)).",
            )

    def _version(self, role: str) -> int:
        pin = self.pins.pin(role)
        return delta.BEFORE if pin is None else pin.version

    def _read(self, role: str) -> DataFrame:
        return self._require(role).read(self.spark)

    def _require(self, role: str) -> Pin:
        pin = self.pins.pin(role)
        if pin is None:
            raise NotBuiltYet(
                f"{role!r} of pipeline {self.pipeline.name!r} has no table yet",
                f"run `tidemark run {self.pipeline.name}` until it has rows, then publish again.",
                value=role,
                pipeline=self.pipeline.name,
            )
        return pin


def _is_replaced(pin: Pin) -> bool:
    try:
        return pin.is_replaced
    except (DeltaError, FileNotFoundError):
        # A version that is not there fails whoever reads it.
        return False


def _results(operator: Operator) -> Iterator[TableSpec]:
    return (table for table in operator.tables if table.is_result)

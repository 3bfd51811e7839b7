"""The way from rows of one log or more to results, as each kind of operator over windows goes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, reduce, singledispatch
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import AT, BATCH, DAY, ORIGIN, WINDOW, DeclarationError, literal
from streaming.declare import OverWindows, Stream, Windowed
from streaming.lake import Lake
from streaming.log import OperatorCounts, valid
from streaming.operators import Progress, can_be_compared, whole_since
from streaming.spark import Analysis, as_json
from streaming.tables import nullable
from streaming.views.functions import ERROR, errors_of
from streaming.views.partial_results import PartialColumns, partial_columns
from streaming.views.results import (
    counted_by,
    counted_rows,
    failure,
    finish,
    group,
    kind_of,
    late_pairs,
    members,
    pairs,
    possible_pairs,
)

Of = TypeVar("Of", bound=OverWindows)


class Computation(ABC, Generic[Of]):
    """Pure functions of the rows of an operator's logs, by stream; steps, corrections and the audit all go this way.

    A pair is a valid row and one of its windows: it has the keys, `_window`, `_late`, `_batch` and `_watermark`. Pairs
    of a key and window become a group, groups become results.
    """

    def __init__(self, operator: Of) -> None:
        self.operator = operator

    @abstractmethod
    def pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The pairs of all rows that the operator counts."""

    @abstractmethod
    def possible_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The pairs, and those that there may be of rows for which they cannot be computed; it raises for no row."""

    @property
    def side(self) -> Column | None:
        """The side that a pair's row is of, in words; None where there is only one."""
        return None

    @abstractmethod
    def is_of(self, stream: Stream) -> Column:
        """True for the pairs of rows of the stream."""

    @abstractmethod
    def counted_by(self, stream: Stream) -> str:
        """A short text that is the same for declarations by which the same pairs of the stream's log are late."""

    @abstractmethod
    def counts(self, stream: Stream) -> OperatorCounts:
        """The counts in each commit of the stream's log: the late pairs that its rows are part of."""

    @abstractmethod
    def group(self, pairs: DataFrame, extra: Mapping[str, Column] | None = None) -> DataFrame:
        """One row per key and window: these, `extra` aggregates, and what `finish` needs."""

    @abstractmethod
    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        """The results of groups: the operator's columns, the `extra` ones, `_day`."""

    @abstractmethod
    def late_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The late pairs, for people: each with its window, its stamp, its batch, and the columns of the row."""

    @abstractmethod
    def failed(self, logs: Mapping[str, DataFrame], lake: Lake, at: Progress) -> DataFrame:
        """Rows and closed windows that cannot be computed, with the error, where the operator is `at`."""

    @abstractmethod
    def kept(self, results: StructType) -> PartialColumns:
        """The data kept of pairs whose window is open, by the types of results: `finish` makes them of it, too."""

    def results(self, pairs: DataFrame) -> DataFrame:
        """The results of pairs."""
        return self.finish(self.group(pairs))

    def voidable(self, late: DataFrame) -> DataFrame | None:
        """Those of the corrected groups for which results may be void that were published; None where none can be.

        Sessions become one, and a function may give nothing for more rows.
        """
        return late if kind_of(self.operator).merges else None


class WindowAnalysis(Analysis[OverWindows]):
    """An operator over windows and its logs, as Spark sees them."""

    @cached_property
    def computation(self) -> Computation[Any]:
        """The way from rows to results."""
        return computation_of(self.of)

    @cached_property
    def results(self) -> StructType:
        """The columns of results, `_day` among them."""
        return self.computation.results(self.computation.pairs(self.inputs)).schema

    @cached_property
    def kept(self) -> PartialColumns:
        """The data kept of pairs whose window is open."""
        return self.computation.kept(self.results)

    @cached_property
    def sessions(self) -> StructType:
        """The columns of open sessions, where windows merge."""
        of_rows = list(self.kept.of_rows)
        return nullable(kind_of(self.of).group(self.computation.pairs(self.inputs), self.of.by, of_rows).schema)


@singledispatch
def computation_of(operator: OverWindows) -> Computation[Any]:
    """The computation of the operator; `computation_of.register` adds a kind."""
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, whose windows nothing here can compute; register "
        "a Computation for that type with `computation_of.register`."
    )


def until(logs: Mapping[str, DataFrame], at: Progress) -> dict[str, DataFrame]:
    """The rows of the `logs`, by stream, of the batches up to `at`."""
    return {name: rows.where(F.col(BATCH) <= at.through[name]) for name, rows in logs.items()}


def is_closed(operator: OverWindows, at: Progress) -> Column:
    """True where the clock, of several logs the joint one, has passed the end of a pair's or group's window."""
    if at.watermark is None:
        return F.lit(False)
    return F.col(f"{WINDOW}.end") <= literal(operator.window.closed_by(at.watermark))


class OfView(Computation[Windowed]):
    """The computation of a view, which has one log."""

    def pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        return pairs(logs[self.operator.of.name], self.operator)

    def possible_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        return possible_pairs(logs[self.operator.of.name], self.operator)

    def is_of(self, stream: Stream) -> Column:
        return F.lit(True)

    def counted_by(self, stream: Stream) -> str:
        return counted_by(self.operator)

    def counts(self, stream: Stream) -> OperatorCounts:
        view, time, counted = self.operator, F.col(stream.event_time), counted_rows(self.operator)
        return OperatorCounts(
            late=F.when(counted, view.window.late_windows(time, F.col("_watermark"))),
            unassigned=F.when(counted, view.window.has_no_window(time)),
            by=self.counted_by(stream),
        )

    def group(self, pairs: DataFrame, extra: Mapping[str, Column] | None = None) -> DataFrame:
        return group(pairs, self.operator, extra=extra)

    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        return finish(groups, self.operator, *extra)

    def kept(self, results: StructType) -> PartialColumns:
        return partial_columns(self.operator, results)

    def voidable(self, late: DataFrame) -> DataFrame | None:
        return late if self.operator.function is not None else super().voidable(late)

    def late_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        columns = ("window_start", "window_end", "_watermark", "_batch", *self.operator.of.columns)
        return late_pairs(logs[self.operator.of.name], self.operator).select(*columns)

    def failed(self, logs: Mapping[str, DataFrame], lake: Lake, at: Progress) -> DataFrame:
        """The rows that the view cannot compute, and the closed windows that its function cannot.

        `error`, `row` as JSON (of a window its key), `window_start` and `window_end` (null for a row), `_at`, `_batch`
        and `_origin` (null for a window), `_day`. A window is of its rows in time, or of all where late ones are
        corrected.
        """
        log = logs[self.operator.of.name]
        told = self._failed_rows(log)
        if self.operator.function is not None:
            told = told.unionByName(self._failed_windows(log, lake, at))
        return told.orderBy(BATCH, ORIGIN, "window_start", "row")

    def _failed_rows(self, log: DataFrame) -> DataFrame:
        view = self.operator
        error = failure(view)
        instant = F.lit(None).cast("timestamp")
        told = valid(log).select(
            (F.lit(None).cast("string") if error is None else error).alias("error"),
            as_json(F.col(f"`{name}`") for name in view.of.columns).alias("row"),
            instant.alias("window_start"),
            instant.alias("window_end"),
            F.col(f"`{view.of.event_time}`").alias(AT),
            BATCH,
            ORIGIN,
            DAY,
        )
        return told.where(F.col("error").isNotNull())

    def _failed_windows(self, log: DataFrame, lake: Lake, at: Progress) -> DataFrame:
        view = self.operator
        assert view.function is not None
        counted = self.pairs(until({view.of.name: log}, at))
        closed = is_closed(view, at)
        parts = [counted.where("not _late"), *([counted] if view.corrected else [])]
        keys = (*view.by, WINDOW)
        errors = [
            errors_of(view.function, members(self.group(part).where(closed), view).where("_copy = 1"), keys)
            for part in parts
        ]
        told = reduce(DataFrame.unionByName, errors).select(
            F.col(ERROR).alias("error"),
            as_json(F.col(f"`{name}`") for name in view.by).alias("row"),
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            F.lit(None).cast("timestamp").alias(AT),
            F.lit(None).cast("bigint").alias(BATCH),
            F.lit(None).cast(log.schema[ORIGIN].dataType).alias(ORIGIN),
            F.to_date(f"{WINDOW}.start").alias(DAY),
        )
        return told.where(can_be_compared(whole_since(lake, view))).distinct()


@computation_of.register
def _(operator: Windowed) -> Computation[Windowed]:
    return OfView(operator)

"""The computation of an operator over windows: rows of its logs become pairs, groups and results.

`Computation` is the contract of each kind of such operators, and `computation_of` finds it by the operator's type. That
of a view, which has one log, is here; those of window joins and co-groups are in `joins`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import AT, BATCH, DAY, ORIGIN, SIGN, STAMP, WINDOW, DeclarationError, by_kind, constant
from streaming.declare import OverWindows, Stream, Windowed
from streaming.lake import Lake
from streaming.log import OperatorCounts, valid
from streaming.operators import Progress, can_be_compared, standing_among, whole_since
from streaming.spark import Analysis, as_json
from streaming.tables import nullable
from streaming.views.functions import ERROR, errors_of
from streaming.views.partial_results import PartialColumns, partial_columns
from streaming.views.results import (
    aggregate,
    are_signed,
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
    rows_in,
    sessions_of,
    signed_rows,
    signs,
    standing_sessions,
)

Of = TypeVar("Of", bound=OverWindows)


class Computation(ABC, Generic[Of]):
    """Pure functions from the rows of an operator's logs to its results; steps, corrections and the audit use them all.

    A pair is a valid row and one of its windows: it has the keys, `_window`, `_late`, `_batch` and `_watermark`. The
    pairs of one key and window become a group, and each group becomes a result. Wherever `logs` are a parameter, they
    are the rows of each log, by the name of the stream.
    """

    def __init__(self, operator: Of) -> None:
        self.operator = operator

    @abstractmethod
    def pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The pairs of all rows that the operator counts; where it cannot compute one, a query over them raises."""

    @abstractmethod
    def possible_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The pairs, and possible ones of rows for which pairs cannot be computed; a query over them raises for no row.

        So days with late rows can be told even where some rows fail.
        """

    @property
    def side(self) -> Column | None:
        """The side that the row of a pair comes from, as a word; None for an operator without sides."""
        return None

    @abstractmethod
    def is_of(self, stream: Stream) -> Column:
        """True for the pairs whose row is from the log of the stream."""

    @abstractmethod
    def counted_by(self, stream: Stream) -> str:
        """A fingerprint of the part of the declaration that decides which pairs of the stream's log are late."""

    @abstractmethod
    def counts(self, stream: Stream) -> OperatorCounts:
        """The counts for the operator in each commit of the stream's log: late pairs, and rows without a window."""

    @abstractmethod
    def group(self, pairs: DataFrame, extra: Mapping[str, Column] | None = None) -> DataFrame:
        """One row per key and window: both, the `extra` aggregates by name, and the columns that `finish` needs."""

    @abstractmethod
    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        """The results of groups: the operator's columns, the `extra` ones, `_day`."""

    @abstractmethod
    def late_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        """The late pairs, for people to look at: each with its window, its stamp, its batch, and the row."""

    @abstractmethod
    def failed(self, logs: Mapping[str, DataFrame], lake: Lake, at: Progress) -> DataFrame:
        """Rows and closed windows that cannot be computed, with the error, by the logs up to the progress `at`."""

    @abstractmethod
    def kept(self, results: StructType, pairs: DataFrame) -> PartialColumns:
        """The aggregates of the pairs of an open window that are kept in state, from which `finish` can make results.

        `results` are the columns of results, because the types decide which aggregates can be kept in parts; `pairs`
        tell by their columns whether rows may be taken back.
        """

    @abstractmethod
    def sign(self, pairs: DataFrame) -> Column:
        """The sign of each of the `pairs`: -1 for a row that takes back another one, 1 for all others."""

    @abstractmethod
    def standing(self, pairs: DataFrame, kept: DataFrame | None) -> DataFrame:
        """The sessions of the rows that stand, of new pairs and what was kept, as groups that keep signed rows."""

    @abstractmethod
    def sessions(self, hulls: DataFrame, *extra: str) -> DataFrame:
        """The sessions of the rows that stand, as groups; `hulls` are those of all rows that were ever added."""

    def results(self, pairs: DataFrame) -> DataFrame:
        """The results of `pairs`, grouped and finished."""
        return self.finish(self.group(pairs))

    def sessions_may_part(self, logs: Mapping[str, DataFrame]) -> bool:
        """True for sessions of rows that may be taken back, by revisions or by hand, so that they may fall apart."""
        return kind_of(self.operator).merges and self.is_signed(logs)

    def is_signed(self, logs: Mapping[str, DataFrame]) -> bool:
        """True where rows of the logs may take back others, which their columns tell."""
        return any(signs(stream, logs[stream.name]) for stream in self.operator.reads)

    def voidable(self, late: DataFrame) -> DataFrame | None:
        """The groups among `late`, those with late pairs, that may make published results void; None where none can.

        A late row may join two published sessions into one, and a function may return no result for more rows.
        """
        return late if kind_of(self.operator).merges else None


class WindowAnalysis(Analysis[OverWindows]):
    """The schemas that Spark derives for an operator over windows from the columns of its logs."""

    @cached_property
    def computation(self) -> Computation[Any]:
        """The computation of the operator."""
        return computation_of(self.of)

    @cached_property
    def results(self) -> StructType:
        """The columns of results, `_day` among them."""
        return self.computation.results(self.computation.pairs(self.inputs)).schema

    @cached_property
    def kept(self) -> PartialColumns:
        """The aggregates that are kept of open windows, as `Computation.kept` says."""
        return self.computation.kept(self.results, self.computation.pairs(self.inputs))

    @cached_property
    def sessions_may_part(self) -> bool:
        """True for sessions that may fall apart, as `Computation.sessions_may_part` says."""
        return self.computation.sessions_may_part(self.inputs)

    @cached_property
    def sessions(self) -> StructType:
        """The columns in which open sessions are kept; only for windows that merge."""
        of_rows = list(self.kept.of_rows)
        return nullable(kind_of(self.of).group(self.computation.pairs(self.inputs), self.of.by, of_rows).schema)


@by_kind
def computation_of(operator: OverWindows) -> Computation[Any]:
    """The computation of the operator; `computation_of.register` adds a kind.

    Raises:
        DeclarationError: none is registered for an operator of this type.
    """
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, whose windows nothing here can compute; register "
        "a Computation for that type with `computation_of.register`."
    )


def until(logs: Mapping[str, DataFrame], at: Progress) -> dict[str, DataFrame]:
    """The rows of the `logs`, by stream, that are in batches up to the progress `at`."""
    return {name: rows.where(F.col(BATCH) <= at.through[name]) for name, rows in logs.items()}


def is_closed(operator: OverWindows, at: Progress) -> Column:
    """True for pairs or groups whose window is closed at the watermark of `at`: with several logs, the joint one."""
    if at.watermark is None:
        return F.lit(False)
    return F.col(f"{WINDOW}.end") <= constant(operator.window.closed_by(at.watermark), f"{WINDOW}.end")


class ViewComputation(Computation[Windowed]):
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

    def results(self, pairs: DataFrame) -> DataFrame:
        return aggregate(pairs, self.operator)

    def finish(self, groups: DataFrame, *extra: str) -> DataFrame:
        return finish(groups, self.operator, *extra)

    def kept(self, results: StructType, pairs: DataFrame) -> PartialColumns:
        return partial_columns(self.operator, results, pairs)

    def sign(self, pairs: DataFrame) -> Column:
        return signs(self.operator.of, pairs).get(SIGN, F.lit(1))

    def standing(self, pairs: DataFrame, kept: DataFrame | None) -> DataFrame:
        rows, view = signed_rows(pairs, self.operator), self.operator
        if kept is not None:
            rows = rows_in(kept, view).select(*rows.columns).unionByName(rows)
        return standing_sessions(rows, view)

    def sessions(self, hulls: DataFrame, *extra: str) -> DataFrame:
        return sessions_of(hulls, self.operator, *extra)

    def voidable(self, late: DataFrame) -> DataFrame | None:
        may_void = self.operator.function is not None or are_signed(late)
        return late if may_void else super().voidable(late)

    def late_pairs(self, logs: Mapping[str, DataFrame]) -> DataFrame:
        log, stream = logs[self.operator.of.name], self.operator.of
        shown = map(F.col, ("window_start", "window_end", STAMP, BATCH))
        rows = (F.col(f"`{name}`") for name in stream.columns)
        sign = (column.alias(name) for name, column in signs(stream, log).items() if name == SIGN)
        return late_pairs(log, self.operator).select(*shown, *sign, *rows)

    def failed(self, logs: Mapping[str, DataFrame], lake: Lake, at: Progress) -> DataFrame:
        """The rows that the view cannot compute, and the closed windows for which its function fails.

        The columns are `error`, `row` as JSON (for a window its key), `window_start` and `window_end` (null for a row),
        `_at`, `_batch` and `_origin` (null for a window), and `_day`. A window is computed from its rows in time, and
        where late ones are corrected also from all of its rows.
        """
        log = logs[self.operator.of.name]
        failures = self._failed_rows(log)
        if self.operator.function is not None:
            failures = failures.unionByName(self._failed_windows(log, lake, at))
        return failures.orderBy(BATCH, ORIGIN, "window_start", "row")

    def _failed_rows(self, log: DataFrame) -> DataFrame:
        view = self.operator
        error = failure(view)
        no_instant = F.lit(None).cast("timestamp")
        rows = standing_among(valid(log), view.of).select(
            (F.lit(None).cast("string") if error is None else error).alias("error"),
            as_json(F.col(f"`{name}`") for name in view.of.columns).alias("row"),
            no_instant.alias("window_start"),
            no_instant.alias("window_end"),
            F.col(f"`{view.of.event_time}`").alias(AT),
            BATCH,
            ORIGIN,
            DAY,
        )
        return rows.where(F.col("error").isNotNull())

    def _failed_windows(self, log: DataFrame, lake: Lake, at: Progress) -> DataFrame:
        view = self.operator
        assert view.function is not None
        counted = self.pairs(until({view.of.name: log}, at))
        closed = is_closed(view, at)
        in_time = counted.where("not _late")
        # Late rows may make the function fail, or mend it, so a corrected window is computed both ways.
        inputs = [in_time, counted] if view.corrected else [in_time]
        keys = (*view.by, WINDOW)
        # A session that is closed may be part of one of all rows ever added that is not.
        parts = self.sessions_may_part({view.of.name: log})
        groups = [self.group(each) if parts else self.group(each).where(closed) for each in inputs]
        errors = [
            # Of rows that agree in the columns of `distinct`, only the first one counts.
            errors_of(view.function, members(each, view).where(closed).where("_copy = 1"), keys)
            for each in groups
        ]
        windows = reduce(DataFrame.unionByName, errors).select(
            F.col(ERROR).alias("error"),
            as_json(F.col(f"`{name}`") for name in view.by).alias("row"),
            F.col(f"{WINDOW}.start").alias("window_start"),
            F.col(f"{WINDOW}.end").alias("window_end"),
            F.lit(None).cast("timestamp").alias(AT),
            F.lit(None).cast("bigint").alias(BATCH),
            F.lit(None).cast(log.schema[ORIGIN].dataType).alias(ORIGIN),
            F.to_date(f"{WINDOW}.start").alias(DAY),
        )
        return windows.where(can_be_compared(whole_since(lake, view))).distinct()


@computation_of.register
def _(operator: Windowed) -> Computation[Windowed]:
    return ViewComputation(operator)

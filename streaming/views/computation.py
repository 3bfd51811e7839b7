"""The way from rows of one log or more to results, as each kind of operator over windows goes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import singledispatch
from typing import Any, Generic, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from streaming.base import DeclarationError
from streaming.declare import OverWindows, Stream
from streaming.lake import Lake
from streaming.log import OperatorCounts
from streaming.operators import Progress
from streaming.views.kinds import kind_of
from streaming.views.partial_results import PartialColumns

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


@singledispatch
def computation_of(operator: OverWindows) -> Computation[Any]:
    """The computation of the operator; `computation_of.register` adds a kind."""
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, whose windows nothing here can compute; register "
        "a Computation for that type with `computation_of.register`."
    )

"""The contract of what runs an operator, and how it is found by the operator's type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import singledispatch
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from streaming.base import DeclarationError, ViewError
from streaming.declare import Operator, Stream
from streaming.lake import Lake
from streaming.log import Batch, OperatorCounts
from streaming.operators.finding import Finding

RunBatch = Callable[[DataFrame, int], None]
"""A `foreachBatch` function: the rows of a batch and its number."""


@dataclass(frozen=True)
class RunContext:
    """What an operator is given to run with.

    `now` gives the processing time. `on_rows` is told how many rows each of its batches wrote. `around` may wrap the
    function that runs the batches of a query, by the operator's name.
    """

    spark: SparkSession
    now: Callable[[], datetime]
    on_rows: Callable[[int], None] = lambda rows: None
    around: Callable[[str, RunBatch], RunBatch] = lambda query, run_batch: run_batch


@dataclass(frozen=True)
class LogAtVersion:
    """An event log as an audit looks at it: the rows of one Delta `version`, and its `batches`, oldest first."""

    version: int | None
    rows: DataFrame
    batches: Sequence[Batch]


@dataclass(frozen=True)
class ReadPosition:
    """Two versions of a log: `entries` is the first whose commit a restart looks at, `rows` the first whose rows are
    not in the operator's tables yet; 0 while it still reads the snapshot it began with.
    """

    entries: int
    rows: int


@dataclass(frozen=True)
class PendingDay:
    """A day whose late pairs are newer than its correction.

    `late_pairs` counts all pairs of the day, `newest_batch` the latest batch that brought one, `through_batch` the
    batch up to which the stored correction goes (null where there is none).
    """

    day: date
    late_pairs: int
    newest_batch: int
    through_batch: int | None


class OperatorRuntime(ABC):
    """One operator on one lake: how it runs, and how it is read, corrected, maintained, rebuilt and audited.

    It keeps nothing but the two: all state is in tables and checkpoints. What is not overridden is right for an
    operator that has no such thing.
    """

    operator: Operator
    lake: Lake

    # Running

    @abstractmethod
    def has_started(self) -> bool:
        """Whether its query has fixed a first batch, so that its checkpoint says where it goes on."""

    @abstractmethod
    def check(self) -> None:
        """Refuse tables that another declaration made, and tables and checkpoints that do not belong together.

        Raises:
            ChangedDeclaration, CheckpointError: with the way out.
        """

    @abstractmethod
    def bootstrap(self, context: RunContext, head: Batch) -> int:
        """Write by batch what follows from a log that was there before the operator; returns the rows written.

        `head` is the newest batch of the log. Called before the query starts, while nothing is ingested; idempotent.
        """

    @abstractmethod
    def plan_query(self, context: RunContext, **trigger: Any) -> Callable[[], StreamingQuery]:
        """Plan the query that reads the logs; the function returned starts it."""

    def counts(self, stream: Stream) -> OperatorCounts | None:
        """What each commit of the stream's log counts for this operator; None where there is nothing to count."""
        return None

    def closes_between(self, before: datetime, after: datetime) -> bool:
        """Whether a clock that moves from `before` to `after` makes results due that no further row is needed for."""
        return False

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The watermark that makes everything due that is pending over the valid `rows` of a log; None for nothing."""
        return None

    def after_batch(self, context: RunContext, batch: Batch) -> None:
        """Called after each batch of a drain: what shows the state of things between closings."""
        return None

    def keep_up(self, context: RunContext, head: Batch) -> None:
        """Called now and then while the pipeline runs, in a thread of its own, so that no batch waits for it."""
        return None

    def catch_up(self, context: RunContext, head: Batch) -> None:
        """Bring everything but the query's own table up to `head`, the newest batch."""
        return None

    # Reading

    @property
    @abstractmethod
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        """What people may look at, by name, in an order for people; the first is the one to begin with.

        A function raises ViewError where its table is not there.
        """

    def position(self) -> ReadPosition | None:
        """How far its query has read the log; None while it has not begun, so that nothing must be kept for it."""
        return None

    # Correcting

    def plan(self, spark: SparkSession) -> list[PendingDay]:
        """The days that need a correction, oldest first."""
        return []

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        """Replace the corrections of each of `days`; returns the corrected results per day.

        Raises:
            ViewError: an operator of this kind has no corrections.
        """
        raise ViewError(f"operator {self.operator.name!r} has no corrections; nothing of it waits for late rows.")

    # Auditing

    @abstractmethod
    def pin(self, spark: SparkSession) -> Any:
        """The versions of its tables now, in a form that `laws` understands."""

    @abstractmethod
    def laws(self, spark: SparkSession, pinned: Any, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        """The laws on its `pinned` tables against the `logs` it reads, by stream, which were pinned afterwards."""

    # Rebuilding

    def uris(self) -> list[str]:
        """Where its tables are, or would be."""
        names = dict.fromkeys(["", *self.operator.reserved_suffixes, *(t.suffix for t in self.operator.tables)])
        return [self.lake.table(self.operator, suffix) for suffix in names]


@singledispatch
def runtime_of(operator: Operator, lake: Lake) -> OperatorRuntime:
    """What runs `operator` on `lake`; `runtime_of.register` adds a kind of operator.

    Raises:
        DeclarationError: no runtime is registered for an operator of this type.
    """
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, which nothing here can run; register an "
        "OperatorRuntime for that type with `runtime_of.register`."
    )

"""The common runtime of all operators that go in steps over their logs, whatever a step computes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import Batch
from streaming.operators.declaration import check_declaration
from streaming.operators.pinned import PinnedTables
from streaming.operators.progress import Progress
from streaming.operators.runtime import OperatorRuntime, Step, Written
from streaming.tables import delta

Batches = Mapping[str, Sequence[Batch]]
"""Batches of several logs, by stream."""
ROWS_PER_CORE = 1_000_000
"""Rows of a log that one step takes at most, so that its memory is bounded however far an operator is behind."""


class Steps(Protocol):
    """The steps of one operator in one process, which knows the files of the logs from one to the next."""

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log; follow one, then ask for the next.

        Each piece goes on where the one before it ended, without a gap.
        """

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow one piece.

        Raises:
            FencedError: another process has taken over.
        """


Of = TypeVar("Of", bound=Operator)
Stepped = TypeVar("Stepped", bound=Steps)


class SteppedRuntime(OperatorRuntime, Generic[Of, Stepped]):
    """One whose tables say, as `Progress`, how far they are in each log; a kind must only add `_begun` to run."""

    operator: Of

    def __init__(self, operator: Of, lake: Lake) -> None:
        self.operator = operator
        self.lake = lake
        self._steps: Stepped | None = None

    def check(self) -> None:
        check_declaration(self.lake, self.operator)

    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        steps = self._steps_on(spark)
        for batches in steps.pieces(rows_per_step(spark)):
            yield Step(batches, partial(self._step, steps, batches, now))

    def through(self) -> Mapping[str, int]:
        return Progress.now(self.lake, self.operator).through

    def read_through(self) -> Mapping[str, int]:
        written = (spec.suffix for spec in self.operator.tables if spec.written_by == "stream")
        tables = (delta.open_table(self.lake.table(self.operator, suffix)) for suffix in written)
        at = [Progress.of(self.operator, table).through for table in tables if table is not None]
        return {name: min((each[name] for each in at), default=-1) for name in self.through()}

    def pin(self, spark: SparkSession) -> PinnedTables[Of]:
        return PinnedTables.now(self.lake, self.operator)

    def refresh(self) -> None:
        self._steps = None

    def _step(self, steps: Stepped, batches: Batches, now: Callable[[], datetime]) -> Written:
        try:
            return steps.step(batches, now)
        except BaseException:
            # A table that was to be written after others may be behind them: steps that begin anew see to that.
            self.refresh()
            raise

    @abstractmethod
    def _begun(self, spark: SparkSession) -> Stepped:
        """The steps of this process, ready for the first one."""

    def _steps_on(self, spark: SparkSession) -> Stepped:
        # Kept, because they know the files of the logs.
        if self._steps is None:
            self._steps = self._begun(spark)
        return self._steps


def slices(batches: Sequence[Batch], most_rows: int) -> Iterator[Sequence[Batch]]:
    """`batches` in order, in pieces of at most `most_rows` rows; a batch with more is a piece of its own."""
    begin, rows = 0, 0
    for place, batch in enumerate(batches):
        if place > begin and rows + batch.summary.rows > most_rows:
            yield batches[begin:place]
            begin, rows = place, 0
        rows += batch.summary.rows
    if batches:
        yield batches[begin:]


def in_pieces(behind: Batches, most_rows: int) -> Iterator[Batches]:
    """The batches to follow, in pieces of at most `most_rows` rows of each log."""
    cut = [slices(batches, most_rows) for batches in behind.values()]
    for piece in zip_longest(*cut, fillvalue=()):
        yield dict(zip(behind, piece, strict=True))


def rows_per_step(spark: SparkSession) -> int:
    """The greatest number of rows of a log that one step takes on all cores of a session."""
    return ROWS_PER_CORE * spark.sparkContext.defaultParallelism

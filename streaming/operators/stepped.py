"""The common runtime of all operators that go in steps over their logs, whatever a step computes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import Generic, Protocol, TypeVar

from pyspark.sql import SparkSession

from streaming.base import utc_now
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import Batch, batches_after
from streaming.operators.as_of import PinnedTables
from streaming.operators.declaration import check_declaration
from streaming.operators.progress import Progress
from streaming.operators.runtime import OperatorRuntime, Step, Written
from streaming.tables import clean_up, delta

Batches = Mapping[str, Sequence[Batch]]
"""Batches of several logs, by stream."""
ROWS_PER_CORE = 1_000_000
"""Rows of a log that one step takes at most, so that its memory is bounded however far an operator is behind."""
_KEPT_FOR = timedelta(hours=1)
_CLEANED_EVERY = timedelta(minutes=10)


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


class Outputs:
    """The tables that each step of an operator writes one after the other, its own last, because readers go by it.

    A step begins where the table `begins_at` is: the operator's own, or the state that it writes after that.
    """

    def __init__(self, lake: Lake, operator: Operator, *, begins_at: str = "") -> None:
        self._lake = lake
        self._operator = operator
        self._begins_at = begins_at
        beside = [table.suffix for table in operator.streamed if table.suffix]
        self.suffixes = [*beside, ""]

    def at(self, suffix: str) -> Progress:
        """The progress of the table with this suffix."""
        return Progress.of(self._operator, delta.open_table(self._lake.table(self._operator, suffix)))

    def position(self) -> Progress:
        """Where the next step begins."""
        return self.at(self._begins_at)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log; follow one, then ask for the next.

        Where a step died between two of its commits, the next one ends where that one was to end.
        """
        position = self.position()
        ahead = self._ahead_of(position)
        if ahead is not None:
            new = self.behind(position)
            yield from in_pieces(
                {name: [each for each in new[name] if each.number <= end] for name, end in ahead.through.items()},
                most_rows,
            )
            position = self.position()
        yield from in_pieces(self.behind(position), most_rows)

    def behind(self, position: Progress) -> Batches:
        """The batches of each log that are to be followed from a position on."""
        streams = self._operator.follows
        return {each.name: batches_after(self._lake, each, position.through[each.name]) for each in streams}

    def _ahead_of(self, position: Progress) -> Progress | None:
        """Where a table is that is ahead of the others; None where none is."""
        others = (self.at(suffix) for suffix in self.suffixes if suffix != self._begins_at)
        return next((table for table in others if position.is_behind(table)), None)


def clean_state(uri: str, now: datetime) -> None:
    """Remove the versions of a table of state that are older than an hour, with their files."""
    clean_up(delta.opened(uri), now - _KEPT_FOR)
    # An open table remembers the entries that it was read from.
    table, hours = delta.opened(uri), _KEPT_FOR // timedelta(hours=1)
    if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


class StateCleaner:
    """Cleans a table of state now and then, for whoever steps its operator."""

    def __init__(self) -> None:
        self._cleaned_at = utc_now()

    def after_step(self, uri: str, now: datetime) -> None:
        """Clean the table at `uri`, if it is there and was not cleaned for ten minutes."""
        if now - self._cleaned_at >= _CLEANED_EVERY:
            self._cleaned_at = now
            if delta.exists(uri):
                clean_state(uri, now)

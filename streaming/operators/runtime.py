"""The contract of what runs an operator, and how it is found by the operator's type."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial, singledispatch
from itertools import zip_longest
from typing import Any, Generic, Protocol, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import AT, BATCH, DAY, ORIGIN, WRITTEN_AT, DeclarationError, OperatorError, date_literal, utc_now
from streaming.declare import FAILED, Operator, Stream
from streaming.lake import Lake
from streaming.log import Batch, OperatorCounts, batches_after, dropped_days, require_log
from streaming.operators.as_of import LogAtVersion, PinnedTables, versions_read
from streaming.operators.comparison import Finding
from streaming.operators.corrected import PendingDay
from streaming.operators.declaration import check_declaration
from streaming.operators.progress import FilterCounts, Progress, generation_of
from streaming.sources import UnitTable, check_has_side, unit_table_of
from streaming.tables import clean_up, delta

Batches = Mapping[str, Sequence[Batch]]
"""Batches of several logs, by stream."""
ROWS_PER_CORE = 1_000_000
"""Rows of a log that one step takes at most, so that its memory is bounded however far an operator is behind."""
_KEPT_FOR = timedelta(hours=1)
_CLEANED_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class Step:
    """A step that is about to run: the batches of the logs, by stream, that it follows; `run` returns what it wrote."""

    batches: Mapping[str, Sequence[Batch]]
    run: Callable[[], Written]

    @property
    def first(self) -> int:
        """The number by which the step is known, also when it is tried again with more batches: that of its first."""
        return min(batches[0].number for batches in self.batches.values() if batches)

    @property
    def last(self) -> int:
        """The number of its last batch."""
        return max(batches[-1].number for batches in self.batches.values() if batches)


@dataclass(frozen=True)
class Written:
    """The output of a step; state is null where none is kept, `failures` are rows that nobody outside has answered."""

    rows: int
    state_rows: int | None = None
    state_bytes: int | None = None
    failures: int = 0


class OperatorRuntime(ABC):
    """One operator on one lake: how it runs, and how it is read, corrected, maintained, rebuilt and audited.

    It keeps nothing but the two, and what it has read of tables: all state is in them. What is not overridden is right
    for an operator that has no such thing.
    """

    operator: Operator
    lake: Lake

    # Running

    @abstractmethod
    def check(self) -> None:
        """Refuse tables that another declaration made, or another version of the platform.

        Raises:
            ChangedDeclaration, OperatorError: with the way out.
        """

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        """Let Spark look at the types of what it computes of logs with these `columns`, by stream; runs nothing.

        Raises:
            AnalysisException: an expression cannot be computed of these types.
        """
        return None

    @abstractmethod
    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        """The steps from where its tables are to the newest batches of the logs that it reads, which have to be there.

        Each is bounded, and run before the next one is asked for. Idempotent: whatever kills a step, the steps that are
        asked for afterwards leave the same tables. However the batches are cut into steps, the rows are the same.
        """

    def through(self) -> Mapping[str, int]:
        """The newest batch of each log up to which its own table follows it, by stream; -1 for none."""
        return {stream.name: -1 for stream in self.operator.follows}

    def waiting(self) -> int:
        """Rows that wait for it: those of the logs that it has not followed yet; starts no Spark."""
        through = self.through()
        behind = (batches_after(self.lake, stream, through[stream.name]) for stream in self.operator.follows)
        return sum(batch.summary.rows - batch.rejected for batches in behind for batch in batches)

    def counts(self, stream: Stream) -> OperatorCounts | None:
        """The counts for this operator in each commit of the stream's log; None where there is nothing to count."""
        return None

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The watermark that makes everything due that is pending over the valid `rows` of a log; None for nothing."""
        return None

    def after_batch(self, spark: SparkSession, batch: Batch, now: Callable[[], datetime]) -> None:
        """Called after each batch of a drain: what shows the state of things between closings."""
        return None

    def keep_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        """Called after the steps while the pipeline runs: everything but the operator's own table."""
        return None

    def catch_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        """Called at the end of a drain: everything but the operator's own table, up to `head`, the newest batch."""
        return None

    def keeps_up_from(self) -> int | None:
        """The first batch that `keep_up` and `catch_up` lack, which names both; None where there is nothing to do."""
        return None

    def close(self) -> None:
        """Let go of what was opened for steps, such as connections: the run is over."""
        return None

    # Reading

    @property
    @abstractmethod
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        """The frames that people may look at, by name, in an order for people; the first is the one to begin with.

        A function raises OperatorError where its table is not there.
        """

    def unit_table(self, output: str = "") -> UnitTable:
        """The table of an output, by its suffix, whose rows come in units, so that a stream can follow them.

        Raises:
            DeclarationError: it has no such output, or rows of this kind cannot be followed.
        """
        raise DeclarationError(
            f"Table(of={self.operator!r}) is of a {type(self.operator).__name__}, which no stream can follow; write a "
            "stream, an operator such as a view, or the path of a Delta table as text. For an operator of your own let "
            "its runtime say `unit_table`."
        )

    def _rows_by_batch(self, output: str) -> UnitTable:
        """The table of an output with the number of the batch or step in `_batch`."""
        of = self.operator
        check_has_side(of.name, of.kind_name, output, (table.suffix for table in of.tables))
        return UnitTable(
            uri=self.lake.table(of, output),
            unit=BATCH,
            # Over several logs a step has a number of its own; over one it bears that of its newest batch.
            unit_name="batch" if len(of.reads) == 1 else "step",
            written=WRITTEN_AT,
            at=AT,
            made_by=f"run `tidemark run {of.folder}` first, so that it has rows",
            order=(ORIGIN,),
            instants=False,
            generation=generation_of,
        )

    def versions(self) -> Mapping[str, int]:
        """The versions of its tables that readers of the lake see, by suffix; `delta.BEFORE` for those not there.

        Raises:
            NoVersionError: there are none as of the batches that the lake is read as of.
        """
        return versions_read(self.lake, self.operator)

    def first_at(self, spark: SparkSession, version: int) -> DataFrame:
        """Its own table at a Delta version, as of the batches that the lake is read as of."""
        return delta.read(spark, self.lake.table(self.operator), version)

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        """Its corrections at a Delta version, or those that the lake's cut calls for; None where there are none."""
        return None

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        """The current results of its tables at Delta `versions`, by suffix; `delta.BEFORE` for one that is missing."""
        return self.first_at(spark, versions[""])

    def watermark_at(self, version: int) -> datetime | None:
        """The watermark by which its own table at a Delta version is done; None for none, and where that means nothing.

        Of several streams it is that of the joint clock.
        """
        return None

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        """The number of late rows of the `logs`, by stream, that it leaves out because the declaration says so."""
        return 0

    def late_per_day(self, spark: SparkSession) -> Mapping[tuple[date, str], int]:
        """The number of late rows by day and by the stream or side that they are of; "" where there is only one.

        Rows count for which it cannot be computed. The logs that it reads are there.
        """
        return {}

    def explain(self, spark: SparkSession) -> Mapping[str, str]:
        """In words for people, by heading: how it is computed, why so, and how far it is; its tables need not be there.

        Raises:
            LogError: a log that it follows is not there yet.
        """
        operator = self.operator
        for stream in operator.follows:
            require_log(self.lake, stream)
        diverts = f"go to the side output {FAILED!r}"
        told = {
            "errors": diverts if operator.diverts else f"pause the {operator.kind_name}",
            **self.described(spark),
            "steps": "after each batch of a log" if operator.every is None else f"at most every {operator.every}",
            "position": self.position(),
        }
        return {heading: words for heading, words in told.items() if words}

    def described(self, spark: SparkSession) -> Mapping[str, str]:
        """The part of `explain` about its kind, by heading."""
        return {}

    def position(self) -> str:
        """The progress of the operator, in words."""
        return ""

    def filtered(self) -> Mapping[str, FilterCounts]:
        """The counts of its filters since its tables were built, by suffix of the table each fills; reads no row."""
        return {}

    # Correcting

    def plan(
        self, spark: SparkSession, logs: Mapping[str, int] | None = None, corrections: int | None = None
    ) -> list[PendingDay]:
        """The days that need a correction, oldest first: whoever corrects, tells of it or waits for it asks here.

        At Delta versions of the `logs`, by stream, and of the `corrections`, or at the newest. Without Spark,
        `streaming.operators.Backlog` tells it as far as it can be known.
        """
        return []

    def corrected_through(self, days: Iterable[date]) -> Mapping[date, int] | None:
        """Those of `days` that are corrected, each with the batch up to which its correction goes; starts no Spark.

        None where one batch does not tell that, because it follows several logs, or late rows are of no day of theirs.
        """
        return None

    def reopened(self) -> set[date]:
        """The days with something that was still open when it was corrected, and has ended since; starts no Spark."""
        return set()

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        """Replace the corrections of each of `days`; returns the corrected results per day.

        Raises:
            OperatorError: an operator of this kind has no corrections.
        """
        raise OperatorError(f"operator {self.operator.name!r} has no corrections; nothing of it waits for late rows.")

    # Auditing

    @abstractmethod
    def pin(self, spark: SparkSession) -> Any:
        """The versions of its tables now, in a form that `laws` understands."""

    @abstractmethod
    def laws(self, spark: SparkSession, pinned: Any, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        """The laws on its `pinned` tables against the `logs` it reads, by stream, which were pinned afterwards."""

    # Retention

    def read_through(self) -> Mapping[str, int]:
        """The newest batch of each log up to which it has read the rows, also after a crash; -1 for none.

        It is at or behind `through`: a table that is written after others may be behind them.
        """
        return self.through()

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        """The first day of the valid rows of `stream` that it may still need; None where that is all of them.

        It has followed all that the logs have of days before `since`, by stream, no day before them waits for a
        correction, and no such row comes any more. A stream that is not there may bring rows of any day. Without a
        session it is as far as that can be told: the day may be earlier, or all days be needed, once there is one.
        """
        return None

    def why_all(self, stream: Stream) -> str:
        """Why any row of `stream` may be needed, where `needs_since` knows no first day: words after its name."""
        return "may need any row of it"

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        """The first day of its results all of which follow from rows that the logs still have.

        `dropped`: per stream the day before which its log has no rows any more; at least one.
        """
        return max(dropped.values())

    # Erasures

    def outlives(self, column: str) -> bool:
        """True if results may stay published when the rows with a value of `column` leave the logs for good.

        Each is of several values, and nothing else is kept of a row.
        """
        return False

    def keep_without(self, rows: Mapping[str, DataFrame]) -> set[date]:
        """Keep results as they are without the `rows`, by stream, that leave its logs, and say so to the audit.

        Returns the days of these results; asked for only where they may stay.
        """
        return set()

    # Rebuilding

    def refresh(self) -> None:
        """Forget what was read of its tables: others have taken their place."""
        return None


def rows_per_day(rows: DataFrame, time: Column, of: Column | None = None) -> dict[tuple[date, str], int]:
    """The number of `rows` by the day of a time and by what they are `of`, in the order of both."""
    keys = (F.to_date(time).alias("day"), (F.lit("") if of is None else of).alias("of"))
    return {(row["day"], row["of"]): row["count"] for row in rows.groupBy(*keys).count().orderBy("day", "of").collect()}


@singledispatch
def runtime_of(operator: Operator, lake: Lake) -> OperatorRuntime:
    """The runtime of `operator` on `lake`; `runtime_of.register` adds a kind of operator.

    Raises:
        DeclarationError: no runtime is registered for an operator of this type.
    """
    raise DeclarationError(
        f"operator {operator.name!r} is a {type(operator).__name__}, which nothing here can run; register an "
        "OperatorRuntime for that type with `runtime_of.register`."
    )


def counts_of(runtimes: Iterable[OperatorRuntime], stream: Stream) -> dict[str, OperatorCounts]:
    """The counts in the commits of a stream's log for the operators that read it, by their names."""
    counts = {each.operator.name: each.counts(stream) for each in runtimes if stream in each.operator.reads}
    return {name: each for name, each in counts.items() if each is not None}


@unit_table_of.register
def _(of: Operator, lake: Lake, side: str) -> UnitTable:
    return runtime_of(of, lake).unit_table(side)


def frame(spark: SparkSession, lake: Lake, operator: Operator, what: str | None = None) -> DataFrame:
    """The batch frame that `tidemark show` prints by the name `what`; the one to begin with where it is left out.

    Raises:
        DeclarationError: the operator has nothing of that name.
        OperatorError: its table is not there yet.
    """
    readable = runtime_of(operator, lake).readable
    name = next(iter(readable)) if what is None else what
    if name not in readable:
        raise DeclarationError(f"{operator.name!r} has no {name!r} to be read; it has: {', '.join(readable)}.")
    return readable[name](spark)


def whole_since(lake: Lake, operator: Operator) -> date | None:
    """The first day of its results that can be computed again; None where all can, as no log has lost a day."""
    dropped = dropped_days(lake, operator.reads)
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def whole_in(lake: Lake, operator: Operator, logs: Mapping[str, LogAtVersion]) -> date | None:
    """The first day of its results that can be computed again; None where all can, as no log has lost a day.

    `logs`: by stream, at the versions that an audit looks at.
    """
    dropped = {name: log.dropped for name, log in logs.items() if log.dropped is not None}
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def can_be_compared(since: date | None) -> Column:
    """True where a result is of a day, by `_day`, that can be computed again."""
    return F.lit(True) if since is None else F.col(DAY) >= date_literal(since)


def of_kept_days(since: date | None) -> str:
    """The words that an audit adds to what it compares."""
    return "" if since is None else f"; from {since} on"


def check_whole(lake: Lake, operator: Operator, days: Iterable[date]) -> None:
    """Refuse to compute days again of which the logs have not all rows any more.

    Raises:
        OperatorError: what is published of these days stays as it is.
    """
    since = whole_since(lake, operator)
    gone = [] if since is None else sorted(day for day in days if day < since)
    if gone:
        named = f"{gone[0]}" if len(gone) == 1 else f"{len(gone):,} days from {gone[0]} to {gone[-1]}"
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} cannot be corrected on {named}: rows of days before {since} were "
            "dropped by the retention of what it reads, and what is left of them would take the place of numbers that "
            "count all. What is published of these days stays as it is; choose days from then on."
        )


def check_can_rebuild(lake: Lake, operator: Operator) -> None:
    """Refuse to put what can be computed again in place of all that was published.

    Raises:
        OperatorError: a log that it reads has lost days; with what can be done.
    """
    since = whole_since(lake, operator)
    if since is not None:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} cannot be built anew: rows of days before {since} were dropped by "
            "the retention of what it reads, so what it has published of them would be lost. Give the old declaration "
            f"back, and it goes on; or build it beside with `tidemark rebuild {operator.name} --as NAME`, which has "
            "what the log still tells. Nothing was changed."
        )


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

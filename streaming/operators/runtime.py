"""The runtime of an operator: the contract that each kind implements, and `runtime_of`, which finds it by type.

`SteppedRuntime` is the base of all kinds whose tables record their progress; `Outputs` tells its steps where to begin.
`each_day` runs their corrections, one day after the other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import zip_longest
from typing import Any, Generic, Protocol, TypeVar

from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import (
    AT,
    BATCH,
    DAY,
    ORIGIN,
    WRITTEN_AT,
    CorrectionsFailed,
    DeclarationError,
    FencedError,
    FunctionError,
    OperatorError,
    by_kind,
    counted,
    date_literal,
    utc_now,
)
from streaming.declare import FAILED, Operator, Stream
from streaming.lake import Lake
from streaming.log import Batch, OperatorCounts, batches_after, dropped_days, require_log
from streaming.operators.as_of import LogAtVersion, PinnedTables, versions_read
from streaming.operators.comparison import Finding
from streaming.operators.declaration import check_declaration
from streaming.operators.effects import Coming, Effect
from streaming.operators.progress import FilterCounts, PendingDay, Progress, generation_of
from streaming.sources import UnitTable, check_has_side, unit_table_of
from streaming.spark import cause_in_words, function_errors
from streaming.tables import clean_up, delta

Batches = Mapping[str, Sequence[Batch]]
"""Batches of several logs, by the name of the stream; those of each log are in order."""
ROWS_PER_CORE = 1_000_000
"""Rows of a log that one step takes at most per core, so that any backlog fits in memory."""
_STATE_KEPT_FOR = timedelta(hours=1)
_STATE_CLEANED_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class Step:
    """A step that is about to run: it follows these `batches`; `run` runs it, and returns its counts."""

    batches: Batches
    run: Callable[[], Written]

    @property
    def first(self) -> int:
        """The least number of its batches, which names the step: it stays when the step is tried with more batches.

        -1 for one that follows only what is published of other operators; so for the greatest.
        """
        return min((batches[0].number for batches in self.batches.values() if batches), default=-1)

    @property
    def last(self) -> int:
        """The greatest number of its batches."""
        return max((batches[-1].number for batches in self.batches.values() if batches), default=-1)


@dataclass(frozen=True)
class Written:
    """The counts of a step: the `rows` that it wrote, and the size of the state after it, None where none is kept.

    `failures` is the number of rows for which a service outside, such as that of a lookup, gave no answer.
    """

    rows: int
    state_rows: int | None = None
    state_bytes: int | None = None
    failures: int = 0


class OperatorRuntime(ABC):
    """One operator on one lake: how it runs, and how it is read, corrected, maintained, rebuilt and audited.

    All state is in tables; in memory it keeps only the operator, the lake and what it has read of tables. A method
    with a body here does what is right for a kind of operator that has nothing of the sort, so override it only if
    yours does. `now` gives the processing time wherever it is a parameter.
    """

    operator: Operator
    lake: Lake

    # Running

    @abstractmethod
    def check(self) -> None:
        """Refuse to run on tables that another declaration made, or another version of the platform.

        Raises:
            ChangedDeclaration: with the ways to go on.
            OperatorError: with the ways to go on.
        """

    def counts_as(self, makes: dict[str, Any]) -> dict[str, Any]:
        """The recorded fingerprint `makes`, taken for today's as far as today's goes on from its tables."""
        return makes

    def analyse(self, spark: SparkSession, columns: Mapping[str, str]) -> None:
        """Let Spark analyze the operator's expressions over logs with these `columns`; runs no query.

        `columns`: by stream, the schema of its log as JSON.

        Raises:
            AnalysisException: an expression cannot be computed of these types.
        """
        return None

    @abstractmethod
    def steps(self, spark: SparkSession, now: Callable[[], datetime]) -> Iterator[Step]:
        """The steps from the progress of its tables to the newest batches of the logs that it reads, which must exist.

        Each step takes a bounded number of rows, and must be run before the next one is asked for. Steps are
        idempotent: after a crash in one, the steps that are asked for next leave the same tables. The rows are the same
        however the batches are cut into steps.
        """

    def through(self) -> Mapping[str, int]:
        """The newest batch of each log that its own table has followed, by stream; -1 for none."""
        return {stream.name: -1 for stream in self.operator.follows}

    def waiting(self) -> int:
        """The number of valid rows in batches of the logs that it has not followed yet; starts no Spark."""
        through = self.through()
        behind = (batches_after(self.lake, stream, through[stream.name]) for stream in self.operator.follows)
        return sum(batch.summary.rows - batch.rejected for batches in behind for batch in batches)

    def counts(self, stream: Stream) -> OperatorCounts | None:
        """The counts for this operator in each commit of the stream's log; None where there is nothing to count."""
        return None

    def latest_due(self, stream: Stream, rows: DataFrame, watermark: datetime) -> datetime | None:
        """The latest instant at which something that is pending falls due; None where nothing is pending.

        Pending are open windows and timers, for example. `rows` are the valid rows of the log of `stream`, and
        `watermark` is where its clock is now.
        """
        return None

    def after_batch(self, spark: SparkSession, batch: Batch, now: Callable[[], datetime]) -> None:
        """Update tables that show intermediate results, such as open windows; called after each batch of a drain."""
        return None

    def keep_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        """Bring tables that no step writes closer to `head`, the newest batch, such as a view's updates.

        Called after steps while the pipeline runs.
        """
        return None

    def catch_up(self, spark: SparkSession, head: Batch, now: Callable[[], datetime]) -> None:
        """Bring tables that no step writes up to `head`, the newest batch; called at the end of a drain."""
        return None

    def keeps_up_from(self) -> int | None:
        """The first batch that `keep_up` and `catch_up` have not followed; None for an operator without such tables."""
        return None

    def close(self) -> None:
        """Close what was opened for steps, such as connections; called at the end of a run."""
        return None

    # Reading

    @property
    @abstractmethod
    def readable(self) -> Mapping[str, Callable[[SparkSession], DataFrame]]:
        """The frames that `tidemark show` prints, by name; the first is the one it prints where no name is given.

        A function raises OperatorError where its table is not there.
        """

    def unit_table(self, output: str = "") -> UnitTable:
        """The table of an `output`, by its suffix, as a stream can follow it, because its rows come in units.

        Raises:
            DeclarationError: it has no such output, or rows of this kind cannot be followed.
        """
        raise DeclarationError(
            f"Table(of={self.operator!r}) is of a {type(self.operator).__name__}, which no stream can follow; write a "
            "stream, an operator such as a view, or the path of a Delta table as text. For an operator of your own let "
            "its runtime say `unit_table`."
        )

    def _would_follow(self, taken_back: str) -> DeclarationError:
        """The refusal to let a stream follow rows that may be `taken_back`, which says in words what rows these are."""
        return DeclarationError(
            f"Table({self.operator.name!r}) would follow {taken_back} that are taken back",
            "write Table(..., what='current').",
            operator=self.operator.name,
        )

    def _rows_by_batch(self, output: str) -> UnitTable:
        """The table of an output that has the number of the batch or step in `_batch`, which is the unit."""
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
        """Its own table, which has the first results, at a Delta version that `versions` has given."""
        return delta.read(spark, self.lake.table(self.operator), version)

    def corrections_at(self, spark: SparkSession, version: int) -> DataFrame | None:
        """Its corrections at a Delta version, or those that the lake's cut calls for; None where there are none."""
        return None

    def current_at(self, spark: SparkSession, versions: Mapping[str, int]) -> DataFrame:
        """The current results of its tables at Delta `versions`, by suffix; `delta.BEFORE` for one that is missing."""
        return self.first_at(spark, versions[""])

    def watermark_at(self, version: int) -> datetime | None:
        """The watermark up to which its own table at a Delta version has all results; of several streams the joint one.

        None before there is one, and for a kind whose results do not depend on a watermark.
        """
        return None

    def left_out(self, spark: SparkSession, logs: Mapping[str, DataFrame]) -> int:
        """The number of late rows of the `logs`, by stream, that it drops because the declaration says so."""
        return 0

    def late_per_day(self, spark: SparkSession) -> Mapping[tuple[date, str], int]:
        """The number of late rows by day and by the stream or side that they are of; "" where there is only one.

        A row for which it cannot be computed whether it is late counts, too. All logs that it reads must exist.
        """
        return {}

    def explain(self, spark: SparkSession) -> Mapping[str, str]:
        """The explanation for people, as `explained` gives it, by Spark's analysis of today.

        Raises:
            LogError: as `explained`.
        """
        return self.explained(self.analysis(spark))

    def analysis(self, spark: SparkSession) -> Mapping[str, Any]:
        """Facts that only Spark's analysis of the declaration tells, as JSON values; they follow from nothing else."""
        return {}

    def explained(self, analysis: Mapping[str, Any]) -> Mapping[str, str]:
        """The explanation for people, by heading: how and why so it is computed, and its progress; starts no Spark.

        Raises:
            LogError: a log that it follows is not there yet.
        """
        operator = self.operator
        for stream in operator.follows:
            require_log(self.lake, stream)
        diverts = f"go to the side output {FAILED!r}"
        told = {
            "errors": diverts if operator.diverts else f"pause the {operator.kind_name}",
            **self.described(analysis),
            "steps": "after each batch of a log" if operator.every is None else f"at most every {operator.every}",
            "position": self.position(),
        }
        return {heading: words for heading, words in told.items() if words}

    def described(self, analysis: Mapping[str, Any]) -> Mapping[str, str]:
        """The lines of `explained` that only this kind of operator has, by heading."""
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
        """The days that need a correction, oldest first.

        `logs` and `corrections` are Delta versions of the logs, by stream, and of the table of corrections; the newest
        where they are left out. `streaming.operators.Backlog` tells these days without Spark, as far as it can.
        """
        return []

    def corrected_through(self, days: Iterable[date]) -> Mapping[date, int] | None:
        """Those of `days` that are corrected, each with the batch up to which its correction goes; starts no Spark.

        None where one batch number does not say that: the operator follows several logs, or its late rows do not belong
        to a day.
        """
        return None

    def reopened(self) -> set[date]:
        """The days with something that was open when it was corrected, and may have ended since; starts no Spark."""
        return set()

    def correct(
        self,
        spark: SparkSession,
        days: Iterable[date],
        now: Callable[[], datetime],
        on_day: Callable[[date, int], None] = lambda day, rows: None,
    ) -> dict[date, int]:
        """Replace the corrections of each of `days`; returns the number of corrected results per day.

        `on_day` is called with each day and that number, once it is committed.

        Raises:
            OperatorError: an operator of this kind has no corrections.
        """
        raise OperatorError(f"operator {self.operator.name!r} has no corrections; nothing of it waits for late rows.")

    # Auditing

    @abstractmethod
    def pin(self, spark: SparkSession) -> Any:
        """The versions of its tables now, for `laws`, which alone knows their type."""

    @abstractmethod
    def laws(self, spark: SparkSession, pinned: Any, logs: Mapping[str, LogAtVersion]) -> Iterator[Finding]:
        """Check the laws of its tables against the logs; yields a finding for each law.

        `pinned` is what `pin` gave; the `logs` that it reads, by stream, were pinned after that, so they are no older.
        """

    # Foretelling

    def effects(self, spark: SparkSession, coming: Coming) -> Sequence[Effect] | None:
        """The effects that rows to come would have on its tables, none where there are none; writes nothing.

        None for a kind of operator that cannot tell.
        """
        return None

    # Retention

    def read_through(self) -> Mapping[str, int]:
        """The newest batch of each log that all its tables have followed, so that none follows it again; -1 for none.

        It is at or behind `through`: tables that are written one after the other may be at different batches.
        """
        return self.through()

    def needs_since(self, spark: SparkSession | None, stream: Stream, since: Mapping[str, date]) -> date | None:
        """The first day of which it may still need valid rows of `stream`; None where it may need those of any day.

        `since`: for each stream a day such that the operator has followed all rows of earlier days, none of these days
        waits for a correction, and none gets a row any more. A stream that is not in it may bring rows of any day.
        Without a `spark` session the answer may be too late a day: with one it may be an earlier day, or None.
        """
        return None

    def why_all(self, stream: Stream) -> str:
        """The reason why `needs_since` gives None for `stream`, as words that follow the operator's name."""
        return "may need any row of it"

    def whole_since(self, dropped: Mapping[str, date]) -> date:
        """The first day from which on all its results can be computed again from rows that the logs still have.

        `dropped`: per stream the day before which retention has removed the rows of its log, for at least one stream.
        """
        return max(dropped.values())

    # Erasures

    def outlives(self, column: str) -> bool:
        """True if results may stay published after an erasure of all rows that have some value of `column`.

        They may where each result is an aggregate over several such values, and no table keeps anything of single rows.
        """
        return False

    def keep_without(self, rows: Mapping[str, DataFrame]) -> set[date]:
        """Keep the results that the `rows`, by stream, which are erased from its logs, are part of.

        Their days are noted for the audit, which can no longer compute them again, and returned. Called only where
        `outlives` is true.
        """
        return set()

    # Rebuilding

    def refresh(self) -> None:
        """Forget what was read of its tables, as other tables have taken their place."""
        return None


def rows_per_day(rows: DataFrame, time: Column, of: Column | None = None) -> dict[tuple[date, str], int]:
    """The number of `rows` by the day of their `time` and by the text `of`, ordered by both; "" where `of` is None."""
    keys = (F.to_date(time).alias("day"), (F.lit("") if of is None else of).alias("of"))
    return {(row["day"], row["of"]): row["count"] for row in rows.groupBy(*keys).count().orderBy("day", "of").collect()}


@by_kind
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
    """The batch frame that `tidemark show` prints by the name `what`; the first one of `readable` where it is left out.

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
    """The first day from which on its results can be computed again; None where no log has dropped rows of a day."""
    dropped = dropped_days(lake, operator.reads)
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def whole_in(lake: Lake, operator: Operator, logs: Mapping[str, LogAtVersion]) -> date | None:
    """The first day, as `whole_since` gives it, by the `logs` of an audit, by stream, at the versions that it reads."""
    dropped = {name: log.dropped for name, log in logs.items() if log.dropped is not None}
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def can_be_compared(since: date | None) -> Column:
    """True for the results whose `_day` is not before `since`, that is, which can be computed again."""
    return F.lit(True) if since is None else F.col(DAY) >= date_literal(since)


def of_kept_days(since: date | None) -> str:
    """The words by which an audit says that it compares only results from the day `since` on."""
    return "" if since is None else f"; from {since} on"


def check_whole(lake: Lake, operator: Operator, days: Iterable[date]) -> None:
    """Refuse to correct days of which the logs do not have all rows any more.

    Raises:
        OperatorError: there is such a day among `days`.
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
    """Refuse to build an operator anew where some of its published results cannot be computed again.

    Raises:
        OperatorError: a log that it reads has dropped days; with what can be done.
    """
    since = whole_since(lake, operator)
    if since is not None:
        raise OperatorError(
            f"{operator.kind_name} {operator.name!r} cannot be built anew: rows of days before {since} were dropped by "
            "the retention of what it reads, so what it has published of them would be lost. Give the old declaration "
            f"back, and it goes on; or build it beside with `tidemark rebuild {operator.name} --as NAME`, which has "
            "what the log still tells. Nothing was changed."
        )


def each_day(
    operator: Operator, days: Iterable[date], correct: Callable[[date], int], on_day: Callable[[date, int], None]
) -> dict[date, int]:
    """Correct each of `days`, oldest first; returns the corrected results of each, which `on_day` is told, too.

    Raises:
        CorrectionsFailed: days for which something cannot be computed, once all others are corrected.
    """
    corrected: dict[date, int] = {}
    failed: dict[date, Exception] = {}
    for day in sorted(days):
        try:
            with function_errors():
                corrected[day] = correct(day)
        except (PySparkException, Py4JJavaError, FunctionError) as error:
            failed[day] = error
        else:
            on_day(day, corrected[day])
    if failed:
        reasons = "; ".join(
            f"{day}: {error if isinstance(error, FunctionError) else cause_in_words(error)}"
            for day, error in failed.items()
        )
        others = "1 other is" if len(corrected) == 1 else f"{len(corrected)} others are"
        raise CorrectionsFailed(
            f"{counted(len(failed), 'day')} of {operator.kind_name} {operator.name!r} cannot be corrected, {others}: "
            f"{reasons}. What was published of them stays as it was",
            f"correct the cause and run `tidemark correct {operator.folder}` again.",
            operator=operator.name,
            failed=failed,
            corrected=corrected,
        ) from next(iter(failed.values()))
    return corrected


def same_generation(operator: Operator, generation: int, table: DeltaTable) -> None:
    """The fence of corrections that were computed for a generation of the operator's tables.

    Raises:
        FencedError: the tables were built anew meanwhile.
    """
    if generation_of(table) != generation:
        raise FencedError(
            f"{operator.kind_name} {operator.name!r} was built anew while it was corrected, and what was computed "
            f"is of the old one; run `tidemark correct {operator.folder}` again."
        )


class Steps(Protocol):
    """The steps of one operator in one process; they keep the file lists of the logs from one step to the next."""

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log, in order and without a gap.

        Follow a piece with `step` before the next one is asked for.
        """

    def step(self, batches: Batches, now: Callable[[], datetime]) -> Written:
        """Follow one piece of `pieces`, and commit to the operator's tables.

        Raises:
            FencedError: another process has taken over.
        """


Of = TypeVar("Of", bound=Operator)
Stepped = TypeVar("Stepped", bound=Steps)


class SteppedRuntime(OperatorRuntime, Generic[Of, Stepped]):
    """The runtime of an operator whose tables record their `Progress` in each log.

    To run, a kind must only add `_begun`.
    """

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
            # The step may have written only some of its tables; steps that begin anew finish it first.
            self.refresh()
            raise

    @abstractmethod
    def _begun(self, spark: SparkSession) -> Stepped:
        """New steps for this process, which have finished or repaired what a crashed step left behind."""

    def _steps_on(self, spark: SparkSession) -> Stepped:
        # They are kept, because they remember the file lists of the logs.
        if self._steps is None:
            self._steps = self._begun(spark)
        return self._steps


def slices(batches: Sequence[Batch], most_rows: int) -> Iterator[Sequence[Batch]]:
    """`batches` of one log in order, in pieces of at most `most_rows` rows; a batch with more is a piece of its own."""
    begin, rows = 0, 0
    for place, batch in enumerate(batches):
        if place > begin and rows + batch.summary.rows > most_rows:
            yield batches[begin:place]
            begin, rows = place, 0
        rows += batch.summary.rows
    if batches:
        yield batches[begin:]


def in_pieces(behind: Batches, most_rows: int) -> Iterator[Batches]:
    """The batches `behind`, which are to follow, in pieces of at most `most_rows` rows of each log.

    Where one log has fewer pieces than another, its batches are empty in the last ones.
    """
    cut = [slices(batches, most_rows) for batches in behind.values()]
    for piece in zip_longest(*cut, fillvalue=()):
        yield dict(zip(behind, piece, strict=True))


def rows_per_step(spark: SparkSession) -> int:
    """The greatest number of rows of each log that one step takes, by the number of cores of the session."""
    return ROWS_PER_CORE * spark.sparkContext.defaultParallelism


class Outputs:
    """The tables for people that each step of an operator writes, one commit after the other.

    The operator's own table is the last of them, because readers go by its progress. The next step begins at the
    progress of the table with the suffix `begins_at`: the operator's own, or its state, which is written after that.
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
        """The progress from which the next step goes on."""
        return self.at(self._begins_at)

    def has_other_state(self) -> bool:
        """True if the state, where steps begin, is ahead of the operator's own table, or of another generation."""
        state, own = self.position(), self.at("")
        return own.is_behind(state) or (state.has_begun and state.generation != own.generation)

    def pieces(self, most_rows: int) -> Iterator[Batches]:
        """The batches to follow, in pieces of at most `most_rows` rows of each log, as `Steps.pieces` says.

        Where a step died between two of its commits, its batches come first, and the piece ends where that step was to
        end.
        """
        position = self.position()
        ahead = self._ahead_of(position)
        if ahead is not None:
            behind = self.behind(position)
            unfinished = {
                name: [each for each in behind[name] if each.number <= end] for name, end in ahead.through.items()
            }
            yield from in_pieces(unfinished, most_rows)
            position = self.position()
        yield from in_pieces(self.behind(position), most_rows)

    def behind(self, position: Progress) -> Batches:
        """The batches of each log that come after a position."""
        streams = self._operator.follows
        return {each.name: batches_after(self._lake, each, position.through[each.name]) for each in streams}

    def _ahead_of(self, position: Progress) -> Progress | None:
        """The progress of a table that a step has brought further than `position`; None where there is none."""
        others = (self.at(suffix) for suffix in self.suffixes if suffix != self._begins_at)
        return next((table for table in others if position.is_behind(table)), None)


def clean_state(uri: str, now: datetime) -> None:
    """Remove the versions of a table of state that are older than an hour, with their files."""
    clean_up(delta.opened(uri), now - _STATE_KEPT_FOR)
    # It is opened again, because the table above still lists the entries that were removed.
    table, hours = delta.opened(uri), _STATE_KEPT_FOR // timedelta(hours=1)
    if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


class StateCleaner:
    """Cleans the table of state of one operator, at most every ten minutes, between its steps."""

    def __init__(self) -> None:
        self._cleaned_at = utc_now()

    def after_step(self, uri: str, now: datetime) -> None:
        """Clean the table at `uri`, if it exists and was not cleaned for ten minutes."""
        if now - self._cleaned_at >= _STATE_CLEANED_EVERY:
            self._cleaned_at = now
            if delta.exists(uri):
                clean_state(uri, now)

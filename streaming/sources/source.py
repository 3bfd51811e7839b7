"""The contract of a source: where payloads come from, and everything the other rooms may know of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import pyarrow as pa

from streaming.base import CheckpointError, Dataset, F, SourceError, dataset_at
from streaming.lake import Lake
from streaming.spark import JarGroup

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import Column, DataFrame, SparkSession

Memory = Mapping[str, Any]
"""The memory of a source of what it has given, as JSON values; it is kept in the commit of each batch."""
ROW_BITS = 33
"""Bits of a position in `_origin` that number a row within its part of the batch, as Spark does within a partition."""
_NAMED = 5


@dataclass(frozen=True)
class SourceBacklog:
    """The backlog of a source, which no batch has taken yet: so many `items`, counted in `unit`, of `size` bytes.

    `size` is None where the source does not tell. `warning` is a sentence on what the source holds and no batch will
    ever take, with what to do about it; empty where there is no such thing. `partitions`: the items of each source
    partition in which some wait, where the source tells.
    """

    items: int
    unit: Literal["files", "rows"]
    size: int | None = None
    warning: str = ""
    partitions: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.items:,} {self.unit} wait"


def by_unit(backlogs: Iterable[SourceBacklog]) -> tuple[SourceBacklog, ...]:
    """The backlogs of several sources added up, one for each unit: files and rows cannot be added."""
    sums: dict[str, SourceBacklog] = {}
    for backlog in backlogs:
        before = sums.get(backlog.unit, SourceBacklog(0, backlog.unit))
        sums[backlog.unit] = SourceBacklog(
            before.items + backlog.items,
            backlog.unit,
            before.size if backlog.size is None else (before.size or 0) + backlog.size,
            " ".join(filter(None, (before.warning, backlog.warning))),
            Counter(before.partitions) + Counter(backlog.partitions),
        )
    return tuple(sums.values())


def backlog_numbers(backlogs: Sequence[SourceBacklog]) -> dict[str, int]:
    """The numbers of backlogs of different units under the names that metrics have."""
    sizes = [backlog.size for backlog in backlogs if backlog.size is not None]
    items = {f"backlog_{backlog.unit}": backlog.items for backlog in backlogs}
    return items | ({"backlog_bytes": sum(sizes)} if sizes else {})


def largest_partitions(backlog: SourceBacklog) -> str:
    """Where most waits, in words; empty where nothing does, or the source does not tell."""
    most = sorted(backlog.partitions.items(), key=lambda entry: (-entry[1], entry[0]))
    more = f" and {len(most) - _NAMED:,} more" if len(most) > _NAMED else ""
    named = ", ".join(f"{name} ({items:,})" for name, items in most[:_NAMED])
    return f"{backlog.unit} wait in {named}{more}." if most else ""


@dataclass(frozen=True)
class SourceChange:
    """One thing in a source, by `name`, that does not agree with the log; `text` says how, and what to do about it.

    `changed`: it is no longer what was ingested, so that the log and the source tell two stories. `waiting`: no row of
    the log comes from it yet.
    """

    kind: Literal["changed", "waiting"]
    name: str
    text: str


@dataclass(frozen=True)
class SourceComparison:
    """The comparison of a source with the log: `ingested` things, counted in `unit`, were looked for in it."""

    ingested: int
    unit: str
    changes: tuple[SourceChange, ...] = ()

    @property
    def changed(self) -> list[SourceChange]:
        """The changes of what had been ingested."""
        return [change for change in self.changes if change.kind == "changed"]


def _no_origins() -> None:
    return None


@dataclass(frozen=True)
class Reading:
    """A query that reads a source: the lake, the stream's checkpoint, and what the source remembers by now.

    `origins` gives the column `_origin` of every row that the log holds, for which all of it is read; None while there
    is no log.
    """

    lake: Lake
    checkpoint: str
    memory: Memory = field(default_factory=dict)
    origins: Callable[[], DataFrame | None] = _no_origins


class PayloadPart(ABC):
    """A part of a batch whose payloads a Python worker reads without Spark; it can be pickled, and read again."""

    @property
    @abstractmethod
    def length(self) -> int | None:
        """The bytes of its payloads; None where that is not known before they are read."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """The payloads, with the columns `_raw` (binary) and `_origin`, in batches of bounded size."""


Remember = Callable[[Callable[[], "DataFrame"], Mapping[str, int]], Memory]
"""Gives what a source remembers once a batch is committed, by what reads the rows as they were written, and by their
number in each source partition."""


def _nothing(written: Callable[[], DataFrame], counts: Mapping[str, int]) -> Memory:
    return {}


def _no_word() -> None:
    return None


@dataclass(frozen=True)
class Taken:
    """One batch: its rows, each with its whole `_origin`, but for those that the log holds already.

    `rows` gives them as a frame of `_raw`, `_origin` and, where the source is typed, `_typed`. `parts` are the same
    rows for Python workers to read, in a group for each task; none where only the frame has them.

    `remember` is called once, when the rows are written and before they are committed, or raises a SourceError where
    rows were lost while they were read.

    `committed` is called once the batch is in the log, for a source that somebody waits for. It is not called where the
    process dies between the two, so the source must find out by itself which of its batches are done.
    """

    rows: Callable[[], DataFrame]
    remember: Remember = _nothing
    parts: Sequence[Sequence[PayloadPart]] = ()
    committed: Callable[[], None] = _no_word


def older_copy(checkpoint: str, why: str) -> CheckpointError:
    """The refusal of a checkpoint that lies behind its log: rows would be left out under numbers that this holds."""
    return CheckpointError(
        f"the checkpoint {checkpoint!r} is an older copy: {why}. Going on would lose what comes under numbers that the "
        "log holds already. Restore a newer copy; or, of a stream that is stopped, move the checkpoint away: "
        "`tidemark doctor --fix` makes that of files again from the log."
    )


@dataclass(frozen=True)
class FileRecords:
    """The payloads of a file in order, and for each the number, from 1, of the line at which it begins.

    `undivided`: whoever has taken the file has numbered its rows one by one, in one part of the batch.
    """

    payloads: Sequence[bytes]
    lines: Sequence[int]
    undivided: bool

    def part_of(self, position: int) -> tuple[Hashable, int]:
        """A part of the batch in which rows of the file are numbered one by one, and the number of a row in it.

        Of a file that may be divided each row is a part of its own, as the others may be anywhere.
        """
        part, number = divmod(position, 1 << ROW_BITS)
        return (part if self.undivided else position), number


class Source(ABC):
    """Yields binary payloads with their origin, batch by batch, and knows nothing of what is in them.

    Spark's checkpoint of the query that reads it says which batch takes what. So a restart needs nothing of the source
    but this: the same planned batch, read again, holds the same payloads under the same origins, and what was lost
    meanwhile is an error that names it.
    """

    knows_its_rows: ClassVar[bool] = False
    """True if it knows a row that the log holds wherever it begins to read, so that a checkpoint may be given up."""

    can_remake_checkpoint: ClassVar[bool] = False
    """True if the rows of the log tell all that its checkpoint does, so that a lost one can be made again."""

    counts_rows: ClassVar[bool] = False
    """True if `compare` counts rows, so that it can tell nothing once the log has dropped some."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """The type of `_origin`, a struct as Spark DDL: its fields together identify a row within its batch."""

    @property
    def jars(self) -> tuple[JarGroup, ...]:
        """The jars that Spark needs to read it, besides those that every session has."""
        return ()

    @property
    def left_to_spark(self) -> str:
        """The reason in the declaration for which Spark reads payloads that tasks could; empty where there is none."""
        return ""

    @property
    def parts(self) -> tuple[Source, ...]:
        """The sources that it is made of, in the order in which they are read."""
        return (self,)

    @property
    def batches_are_extracts(self) -> bool:
        """True if each batch is declared to be one delivery, as a whole and alone, such as an extract of a table."""
        return False

    @property
    def follows(self) -> tuple[tuple[Any, str], ...]:
        """The tables of the lake whose rows it takes: the stream or operator that writes each, and the side output."""
        return ()

    @property
    def takes_back(self) -> bool:
        """True if some of its rows take back earlier ones: `_origin.change` is -1 in those, and 1 in all others.

        `_origin.identity` is the same in a row and in the one that takes it back, and in no other one of a window.
        """
        return False

    @property
    def tells_watermark(self) -> bool:
        """True if it tells a watermark by itself, by which a clock can go."""
        return False

    def told_watermark(self, lake: Lake, memory: Memory) -> datetime | None:
        """The watermark that the source itself tells, once a log that remembers `memory` has what it has; None: none.

        No row that it brings later for the first time has an earlier event time.
        """
        return None

    def taken_through(self, memory: Memory) -> int:
        """The newest unit of the table it follows that a log has which remembers `memory`; -1 for none."""
        return -1

    @property
    @abstractmethod
    def partitioned(self) -> bool:
        """True if its rows come from partitions whose event times move apart (see `partition_of`)."""

    @abstractmethod
    def location(self, lake: Lake) -> str:
        """Where it is, for people and error texts; an absolute path or URI where there is one."""

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The datasets that it reads, as lineage names them; none where its location has no such name."""
        here = dataset_at(self.location(lake))
        return () if here is None else (here,)

    def checkpoint(self, given: str, memory: Memory) -> str:
        """Where Spark keeps what the query takes that reads it now; `given` is the place that the stream has for that.

        All other methods are given the stream's place.
        """
        return given

    def may_begin_anew(self, memory: Memory) -> bool:
        """True if a query without a checkpoint would neither lose nor repeat a row."""
        return self.knows_its_rows

    def after_end(self, memory: Memory) -> Memory | None:
        """The memory once the query that reads the source now has come to an end of its own, and another one follows.

        None where one query goes on and on.
        """
        return None

    def check_same(self, lake: Lake, memory: Memory) -> None:  # noqa: B027 -- most sources go on wherever they are
        """Refuse a source that is another one than that of a log which remembers `memory`; needs no session.

        Raises:
            SourceError: with what to do.
        """

    @abstractmethod
    def check_there(self, spark: SparkSession, reading: Reading) -> None:
        """Refuse a source that is gone, which to Spark may look like one without data, or is another one by now.

        Raises:
            SourceError: naming what is missing.
        """

    @abstractmethod
    def read(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """A streaming frame of `_raw`, a payload a row, and of what `_origin` tells before a batch is taken.

        Where the source is typed (see `is_typed`) with `_typed` beside them.

        Raises:
            SourceError: the source is missing.
        """

    @abstractmethod
    def take(self, spark: SparkSession, reading: Reading, query_batch: int, rows: DataFrame) -> Taken:
        """The rows of one batch of the query, made of the `rows` that the frame of `read` brought.

        Raises:
            SourceError: something of the batch was lost after it was planned; it is named.
        """

    def check_repeated(self, reading: Reading, query_batch: int) -> None:  # noqa: B027 -- most sources cannot tell
        """Refuse a batch that the log holds by its number, and that would bring other rows now.

        Raises:
            CheckpointError: the checkpoint is an older copy.
        """

    def of_row(self, origin: Mapping[str, Any]) -> tuple[Source, Mapping[str, Any]]:
        """The source that a row is from, of all that make this one up, and what that one tells of it."""
        return self, origin

    def records(self, lake: Lake, origin: Mapping[str, Any], most: int) -> FileRecords | None:
        """The payloads of the file that a row is from, as its `origin` tells, which has `path` and `position` then.

        None where it is from no file, or where that is gone, or another one by now, or has more than `most` bytes.
        """
        return None

    @abstractmethod
    def partition_of(self, origin: Column) -> Column:
        """The source partition of each row, by its `_origin`; never null, the same for all where there is but one."""

    def is_typed(self, origin: Column) -> Column:
        """True where Spark has written the payload of a row, by its `_origin`, as JSON of typed columns.

        Then, and only then, a value that JSON cannot have is taken from the text that Spark writes for it.
        """
        return F.lit(False)

    def order_of(self, origin: Column) -> Column:
        """The column that orders the rows of a batch as the source has them, by their `_origin`."""
        return origin

    @abstractmethod
    def time_of(self, origin: Column) -> Column:
        """When the source had each row, by its `_origin`: latency counts from there."""

    @abstractmethod
    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """A description of what a batch of the query holds, for a person to read; needs no session."""

    @abstractmethod
    def explain(self, spark: SparkSession, reading: Reading, text: str) -> SourceError | None:
        """The error of the source behind Spark's `text` on a failed query; None where the source is not the cause."""

    @abstractmethod
    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts what waits now, each time it is called with what the source remembers by then.

        It is made once for a query, and may itself remember what it has read.

        Raises:
            SourceError: by what is returned, where the source does not answer.
        """

    @abstractmethod
    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """The differences between the source as it is now and the rows ingested so far, `origins`, a column `_origin`.

        What was removed after it was ingested is no difference.
        """

    def remake_checkpoint(
        self, checkpoint: str, lake: Lake, query: str, query_batch: int, origins: Iterable[Mapping[str, Any]]
    ) -> None:
        """Make the checkpoint of a query again that ends with `query_batch`; `origins` are those of the log's rows.

        Only where `can_remake_checkpoint`.
        """
        raise NotImplementedError

    def recorded(self, checkpoint: str, lake: Lake) -> str | None:
        """The place that a checkpoint tells of, where that is another one than the source has now; else None."""
        return None

    def move(self, checkpoint: str, recorded: str, there: Lake, to: Lake) -> int:
        """Let the copy of a checkpoint go on in the lake `to`; returns how much was brought there that still waits.

        `recorded` is the `location` that the checkpoint tells of, and `there` the lake that the copy comes from, by
        now. A source that lies in no lake is read from where it is.
        """
        return 0

    @property
    @abstractmethod
    def larger_batches(self) -> str:
        """The way to make its batches larger, as the middle of a sentence of advice."""

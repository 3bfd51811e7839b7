"""The contract of a source: where payloads come from, and everything the other rooms may know of that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pyspark.sql import Column, DataFrame, SparkSession

from streaming.lake import Lake


@dataclass(frozen=True)
class SourceBacklog:
    """What a source holds that no batch has taken yet: so many `items`, counted in `unit`, of `size` bytes.

    `size` is None where the source does not tell. `warning` is a sentence on what the source holds and no batch will
    ever take, with what to do about it; empty where there is no such thing.
    """

    items: int
    unit: Literal["files", "rows"]
    size: int | None = None
    warning: str = ""

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
        )
    return tuple(sums.values())


def backlog_numbers(backlogs: Sequence[SourceBacklog]) -> dict[str, int]:
    """The numbers of backlogs of different units under the names that metrics have."""
    sizes = [backlog.size for backlog in backlogs if backlog.size is not None]
    items = {f"backlog_{backlog.unit}": backlog.items for backlog in backlogs}
    return items | ({"backlog_bytes": sum(sizes)} if sizes else {})


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
    """How a source compares with the log: `ingested` things, counted in `unit`, were looked for in it."""

    ingested: int
    unit: str
    changes: tuple[SourceChange, ...] = ()

    @property
    def changed(self) -> list[SourceChange]:
        """What was changed after it was ingested."""
        return [change for change in self.changes if change.kind == "changed"]


class Source(ABC):
    """Yields binary payloads with their origin, batch by batch, and knows nothing of what is in them.

    Spark's checkpoint of the query that reads it says which batch takes what. So a restart needs nothing of the source
    but this: the same planned batch, read again, holds the same payloads under the same origins, and what was lost
    meanwhile is an error that names it.
    """

    origin: ClassVar[str]
    """The type of `_origin`, a struct as Spark DDL: its fields together identify a row within its batch."""

    @property
    @abstractmethod
    def partitioned(self) -> bool:
        """Whether its rows come from partitions whose event times move apart (see `partition_of`)."""

    @abstractmethod
    def location(self, lake: Lake) -> str:
        """Where it is, for people and error texts; an absolute path or URI where there is one."""

    @abstractmethod
    def check_there(self, spark: SparkSession, lake: Lake) -> None:
        """Refuse a source that is gone, which to Spark may look like one without data.

        Raises:
            SourceError: naming what is missing.
        """

    @abstractmethod
    def read(self, spark: SparkSession, lake: Lake) -> DataFrame:
        """A streaming frame of `_raw`, a payload a row, and of what `_origin` tells before rows are numbered.

        Raises:
            SourceError: the source is missing.
        """

    @abstractmethod
    def located(self, origin: Column) -> Column:
        """The whole `_origin` of each row of one batch, made of the one that `read` gives."""

    @abstractmethod
    def partition_of(self, origin: Column) -> Column:
        """The source partition of each row, by its `_origin`; never null, the same for all where there is but one."""

    @abstractmethod
    def time_of(self, origin: Column) -> Column:
        """When the source had each row, by its `_origin`: latency counts from there."""

    @abstractmethod
    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """What a batch of the query holds, for a person to read; needs no session."""

    @abstractmethod
    def check_batch(self, spark: SparkSession, checkpoint: str, query_batch: int) -> None:
        """Refuse a batch of which something was lost after it was planned.

        Raises:
            SourceError: naming what was lost.
        """

    @abstractmethod
    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[], SourceBacklog]:
        """Counts what waits now, each time it is called; made once for a query, it may remember what it has read."""

    @abstractmethod
    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """What differs between the source as it is now and the rows ingested so far, `origins`, a column `_origin`.

        What was removed after it was ingested is no difference.
        """

    @property
    @abstractmethod
    def larger_batches(self) -> str:
        """What makes its batches larger, as the middle of a sentence of advice."""

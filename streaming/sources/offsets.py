"""A source whose batches are ranges of offsets: the part that all such sources have in common."""

from __future__ import annotations

import base64
import json
import pickle
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streaming.base import CheckpointError, SourceError
from streaming.formats import TYPED
from streaming.lake import Lake
from streaming.sources.source import Memory, Reading, Source, SourceBacklog, Taken
from streaming.spark import has_begun, newest_planned, planned_offsets

OFFSETS = "offsets"
"""Under this name a log remembers up to which offsets it holds rows."""
Offsets = Mapping[str, int]
"""A place in a source, such as the next offset of each partition by its name; what the numbers mean is its own."""
_READER = "reader"


class OffsetSource(Source):
    """A source written in Python: a `reader` says how far it reaches and reads between two offsets; the rest is here.

    Spark keeps the offsets of each planned batch in its checkpoint, and the log keeps those up to which it holds rows
    in the commit of each batch. So a batch is the same whenever it is read, and a checkpoint may be moved away: the
    query then goes on where the log ends.

    The reader yields a column `_raw`, or what `payload` makes one of, and each field of `origin` under its name.
    """

    knows_its_rows: ClassVar[bool] = True

    @abstractmethod
    def reader(self, lake: Lake, memory: Memory) -> OffsetReader:
        """The reader that plans and reads batches; `memory` is what the source remembers by now.

        Raises:
            SourceError: the source is gone, or is another one than it was.
        """

    def payload(self) -> Column:
        """The payload of a row, of the columns that the reader yields."""
        return F.col("_raw")

    def remembered(self, lake: Lake) -> Memory:
        """The memory beside the offsets, such as an identity by which a source that was replaced is recognised."""
        return {}

    @abstractmethod
    def words(self, begins: Offsets, ends: Offsets) -> str:
        """A description of what lies between two offsets, for a person to read."""

    @abstractmethod
    def waiting(self, lake: Lake, memory: Memory, begins: Offsets) -> SourceBacklog:
        """The backlog from `begins` on.

        Raises:
            SourceError: the source does not answer.
        """

    def check_planned(self, lake: Lake, memory: Memory, begins: Offsets, ends: Offsets) -> None:
        """Refuse a batch of which something was lost since it was planned.

        Raises:
            SourceError: naming what.
        """

    @property
    def partitioned(self) -> bool:
        """Not unless a subclass has partitions."""
        return False

    def check_there(self, spark: SparkSession, reading: Reading) -> None:
        """Refuse a source that is gone, or is another one than it was."""
        self.reader(reading.lake, reading.memory)

    def read(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """A streaming frame of the payload, `_origin` and `_typed`."""
        reader = self.reader(reading.lake, reading.memory)
        rows = _stream_of(spark, reader, _first(reader, reading.memory))
        origin = StructType.fromDDL(self.origin.removeprefix("struct<").removesuffix(">"))
        assert isinstance(origin, StructType)
        located = rows.select(self.payload().alias("_raw"), F.struct(*origin.names).alias("_origin"))
        return located.withColumn(TYPED, self.is_typed(F.col("_origin")))

    def take(self, spark: SparkSession, reading: Reading, query_batch: int, rows: DataFrame) -> Taken:
        """The rows as they come, and the offsets behind them to remember.

        Raises:
            CheckpointError: the checkpoint is at another place than the log.
            SourceError: the source is another one by now, or something of the batch was lost.
        """
        lake, memory = reading.lake, reading.memory
        begins, ends = self._planned(reading, query_batch)
        held = memory.get(OFFSETS)
        if held is not None and dict(held) != dict(begins):
            raise CheckpointError(
                f"the checkpoint {reading.checkpoint!r} is not the one of this log: its batch {query_batch} begins at "
                f"{json.dumps(dict(begins))}, and the log ends at {json.dumps(held)}. Stop the stream and move the "
                "checkpoint away: the stream then goes on where the log ends, and reads nothing twice."
            )
        self.check_planned(lake, memory, begins, ends)
        identity = self.remembered(lake)

        def remember(written: Callable[[], DataFrame], counts: Mapping[str, int]) -> Memory:
            if self.remembered(lake) != identity:
                raise SourceError(
                    f"{self.location(lake)} was replaced while a batch of it was read; the batch was not appended, and "
                    "the next attempt says what to do."
                )
            return {**identity, OFFSETS: dict(ends)}

        return Taken(lambda: rows, remember)

    def check_repeated(self, reading: Reading, query_batch: int) -> None:
        """Refuse a batch that ends elsewhere than the log, though the log has one of that number.

        Raises:
            CheckpointError: the checkpoint is an older copy.
        """
        _, ends = self._planned(reading, query_batch)
        held = reading.memory.get(OFFSETS)
        if held is not None and dict(held) != dict(ends):
            raise CheckpointError(
                f"the checkpoint {reading.checkpoint!r} is an older copy: its batch {query_batch} ends at "
                f"{json.dumps(dict(ends))}, and the log at {json.dumps(held)}. Stop the stream and move the checkpoint "
                "away: the stream then goes on where the log ends, and reads nothing twice."
            )

    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """The offsets in words."""
        begins, ends = planned_offsets(checkpoint, query_batch)
        return self.words(begins or {}, ends or {})

    def explain(self, spark: SparkSession, reading: Reading, text: str) -> SourceError | None:
        """The error that the source raises now, or that it raised in the process that planned or read."""
        try:
            self.check_there(spark, reading)
        except SourceError as error:
            return error
        match = re.search(r"SourceError: ([^\n]+)", text)
        return SourceError(match[1]) if match else None

    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts what is in no batch of the query."""

        def count(memory: Memory) -> SourceBacklog:
            return self.waiting(lake, memory, self._reached(lake, checkpoint, memory))

        return count

    def _reached(self, lake: Lake, checkpoint: str, memory: Memory) -> Offsets:
        """Behind all that the query has planned; where it has planned nothing, where it begins."""
        batch = newest_planned(checkpoint) if has_begun(checkpoint) else None
        ends = None if batch is None else planned_offsets(checkpoint, batch)[1]
        return _first(self.reader(lake, memory), memory) if ends is None else ends

    def _planned(self, reading: Reading, query_batch: int) -> tuple[Offsets, Offsets]:
        begins, ends = planned_offsets(reading.checkpoint, query_batch)
        # Spark keeps where a query ends, and asks the source again where its first batch begins.
        return begins or _first(self.reader(reading.lake, reading.memory), reading.memory), ends


def _first(reader: OffsetReader, memory: Memory) -> Offsets:
    held: Offsets | None = memory.get(OFFSETS)
    return reader.first() if held is None else held


class OffsetReader(ABC):
    """Plans and reads batches between offsets.

    It is pickled: one copy lives in the process in which Spark plans the batches of a query, others in the workers that
    read them. What it says of a pair of offsets must be the same in each of them, and at any time.
    """

    @property
    @abstractmethod
    def schema(self) -> StructType | str:
        """The columns of what `read` yields, as Spark knows them or as its DDL."""

    @property
    @abstractmethod
    def rows_per_batch(self) -> int:
        """The most rows that a batch takes, as far as the source can be cut."""

    @abstractmethod
    def first(self) -> Offsets:
        """Where a query begins that has no checkpoint."""

    @abstractmethod
    def newest(self, begins: Offsets) -> Offsets:
        """Behind all that is there now, for a query that has everything before `begins`; never before `begins`.

        Raises:
            SourceError: the source does not answer, or is not what it was.
        """

    @abstractmethod
    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        """The end of a batch from `begins` with at most `rows` rows, but some if there are any before `newest`."""

    @abstractmethod
    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[Any]:
        """The pieces that Spark's tasks read, each a picklable value; together exactly the rows between the two places.

        Raises:
            SourceError: some of it is not there any more.
        """

    @abstractmethod
    def read(self, piece: Any) -> Iterator[pa.RecordBatch]:
        """The rows of one piece; read again, the same rows."""


def _stream_of(spark: SparkSession, reader: OffsetReader, first: Offsets) -> DataFrame:
    """A streaming frame of what the reader yields; a query without a checkpoint begins at `first`."""
    spark.dataSource.register(_OffsetDataSource)
    # An option is text, and the source is made of its options in another process.
    pickled = base64.b64encode(pickle.dumps((reader, dict(first)))).decode()
    return spark.readStream.format(_OffsetDataSource.name()).option(_READER, pickled).load()


class _OffsetDataSource(DataSource):
    """Made by Spark of the options that `_stream_of` gives."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        given: tuple[OffsetReader, dict[str, int]] = pickle.loads(base64.b64decode(options[_READER]))
        self._reader, self._first = given

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "tidemark_offsets"

    def schema(self) -> StructType | str:
        """That of the reader."""
        return self._reader.schema

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """The reader that plans and reads for one query."""
        return _StreamReader(self._reader, self._first)


class _StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, reader: OffsetReader, first: dict[str, int]) -> None:
        self._reader = reader
        self._first = first
        self._drains = False
        self._until: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return self._first

    def prepareForTriggerAvailableNow(self) -> None:
        self._drains = True

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._reader.rows_per_batch)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if self._until is None or not self._drains:
            self._until = dict(self._reader.newest(start))
        if isinstance(limit, ReadAllAvailable):
            return self._until
        assert isinstance(limit, ReadMaxRows)
        return dict(self._reader.bounded(start, self._until, limit.max_rows))

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(piece) for piece in self._reader.pieces(start, end)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        piece: Any = partition.value
        return self._reader.read(piece)

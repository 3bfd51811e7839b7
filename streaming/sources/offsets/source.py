"""A source whose batches are ranges of offsets: the part that all such sources have in common."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import CheckpointError, SourceError
from streaming.formats import TYPED
from streaming.lake import Lake
from streaming.sources.backlog import SourceBacklog
from streaming.sources.offsets.data_source import stream_of
from streaming.sources.offsets.reader import OffsetReader, Offsets
from streaming.sources.source import Memory, Reading, Source, Taken
from streaming.spark import has_begun, newest_planned, planned_offsets

OFFSETS = "offsets"
"""Under this name a log remembers up to which offsets it holds rows."""


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
        rows = stream_of(spark, reader, _first(reader, reading.memory))
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

        def remember(written: DataFrame, counts: Mapping[str, int]) -> Memory:
            if self.remembered(lake) != identity:
                raise SourceError(
                    f"{self.location(lake)} was replaced while a batch of it was read; the batch was not appended, and "
                    "the next attempt says what to do."
                )
            return {**identity, OFFSETS: dict(ends)}

        return Taken(rows, remember)

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

"""An `OffsetReader` as what Spark calls a Python data source: it plans in one process and reads in the workers."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streaming.sources.offsets.reader import OffsetReader, Offsets

_READER = "reader"


def stream_of(spark: SparkSession, reader: OffsetReader, first: Offsets) -> DataFrame:
    """A streaming frame of what the reader yields; a query without a checkpoint begins at `first`."""
    spark.dataSource.register(OffsetDataSource)
    # An option is text, and the source is made of its options in another process.
    pickled = base64.b64encode(pickle.dumps((reader, dict(first)))).decode()
    return spark.readStream.format(OffsetDataSource.name()).option(_READER, pickled).load()


class OffsetDataSource(DataSource):
    """Made by Spark of the options that `stream_of` gives."""

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

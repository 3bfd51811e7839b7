"""The contract of a source in Python with Spark: how far there is something, and the rows between two such places."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

Offsets = Mapping[str, int]
"""A place in a source, such as the next offset of each partition by its name; what the numbers mean is its own."""


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

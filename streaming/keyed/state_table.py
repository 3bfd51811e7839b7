"""The table of a keyed function's state as a step finds it: its columns, its files by bucket, the first timer in each.

Buckets are ranges of a hash of the key, all of the same width. A step reads and writes those that have rows or timers
that are due, and no other. How many there are follows from how much state there is, and is nobody's choice: another
number is another layout of the same rows. Numbers of the table tell how many they are, and which text of the functions
made it. Spark brings rows to their buckets by the same hash.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from itertools import accumulate, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streaming.base import BATCH, DAY, F, optional_micros, python_values
from streaming.declare import Keyed, text_number
from streaming.keyed.fold import FOREVER, NEVER
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_BITS = 64
_FEWEST, _MOST = 4, 512
KEYS_PER_BUCKET = 32_768
BYTES_PER_BUCKET = 4 * 2**20
"""The target size of a bucket: one that is small costs a file, one that is large is read for a single key."""
BUCKETS = "buckets"
"""The number of the state's table that tells into how many buckets its files are cut."""
SOURCE = "source"
"""The number of the state's table that stands for the functions' text."""
HASH = "_hash"
"""A hash of the keys, a whole number of 64 bits, by which the state is cut into buckets."""

TIMERS, DUE = "_timers", "_due"
"""The timers that are pending by name, and the time of the first."""
_TIME = pa.timestamp("us", "UTC")
_Hashes = np.ndarray[Any, np.dtype[np.int64]]


StoredKey = tuple[int, int, tuple[Any, ...], Mapping[str, int] | None]
"""A key as it is stored: its place in the bucket, its hash, its state fields in order, and its timers."""


@dataclass(frozen=True)
class Buckets:
    """So many buckets, a power of two from 2 on, in the order of the hashes."""

    count: int

    @classmethod
    def of_size(cls, keys: int, size: int, count: int | None = None) -> Buckets:
        """Enough for so many keys and bytes; those there are, `count`, stay while they are not four times too many."""
        wanted = max(-(-keys // KEYS_PER_BUCKET), -(-size // BYTES_PER_BUCKET), _FEWEST)
        fitting = min(1 << (wanted - 1).bit_length(), _MOST)
        return cls(count if count is not None and fitting <= count <= 4 * fitting else fitting)

    @property
    def shift(self) -> int:
        """The bits of a hash below those that tell its bucket."""
        return _BITS - (self.count.bit_length() - 1)

    def of(self, hashes: Any) -> Any:
        """The bucket of a hash, or of each in an array."""
        return (hashes >> self.shift) + self.count // 2


@dataclass(frozen=True)
class StateFile:
    """A file of the table; no hash in it is outside `first` to `last`, no timer before `due` (microseconds)."""

    path: str
    rows: int
    size: int
    first: int
    last: int
    due: int


class StateTable:
    """The open `table` of state at `uri`, of a function with so many `keys` columns; its columns are in `schema`."""

    def __init__(self, table: DeltaTable, uri: str, schema: pa.Schema, keys: int) -> None:
        self._uri = uri
        self._schema = schema
        self._keys = keys
        self.files = tuple(_files(table))
        before = table.transaction_version(BUCKETS)
        self.buckets = Buckets.of_size(self.rows, self.size, before)
        # Each file is of one bucket, unless their number has changed or somebody has compacted the table.
        self._is_cut = before == self.buckets.count and all(len(self._buckets_of(file)) == 1 for file in self.files)

    @property
    def rows(self) -> int:
        """The number of keys that have state."""
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def stored(self, clock: int) -> StoredState:
        """The buckets that a step up to `clock` reads: all if the table is cut otherwise, else those it has to do with.

        These are the ones with rows, which its tasks find out, and those with a timer that is due.
        """
        due = (file for file in self.files if file.due <= clock or not self._is_cut)
        return self._stored(frozenset(bucket for file in due for bucket in self._buckets_of(file)))

    def whole(self) -> StoredState:
        """All of it, to be visited."""
        return self._stored(frozenset(bucket for file in self.files for bucket in self._buckets_of(file)))

    def of_all(self) -> StoredState:
        """All buckets, also those in which there is nothing yet."""
        return replace(self.whole(), visited=frozenset(range(self.buckets.count)))

    def left_by(self, folded: Collection[int]) -> tuple[StateFile, ...]:
        """The files that a step leaves as they are which has folded these buckets."""
        return tuple(file for file in self.files if not any(each in folded for each in self._buckets_of(file)))

    def _stored(self, visited: frozenset[int]) -> StoredState:
        files: dict[int, tuple[str, ...]] = {}
        for file in self.files:
            for bucket in self._buckets_of(file):
                files[bucket] = (*files.get(bucket, ()), file.path)
        return StoredState(self.buckets, self._keys, self._uri, self._schema, files, visited)

    def _buckets_of(self, file: StateFile) -> range:
        return range(self.buckets.of(file.first), self.buckets.of(file.last) + 1)


def source_number(keyed: Keyed) -> int:
    """The number of a keyed function's text."""
    return text_number((keyed.on_row, *keyed.timers.values()))


def _files(table: DeltaTable) -> Iterator[StateFile]:
    actions = pa.table(table.get_add_actions(flatten=True))

    def column(name: str) -> Iterable[Any]:
        return actions[name].to_pylist() if name in actions.column_names else [None] * len(actions)

    names = ("path", "num_records", "size_bytes", f"min.{HASH}", f"max.{HASH}", f"min.{DUE}", f"null_count.{DUE}")
    for path, rows, size, first, last, due, nulls in zip(*map(column, names), strict=True):
        yield StateFile(
            path,
            rows or 0,
            size,
            # Of a file whose bounds nobody knows everything is possible.
            -(1 << 63) if first is None else first,
            (1 << 63) - 1 if last is None else last,
            _due(due, has_none=nulls is not None and nulls == rows),
        )


def _due(first: datetime | None, *, has_none: bool) -> int:
    if has_none:
        return FOREVER
    micros = optional_micros(first)
    return NEVER if micros is None else micros


@dataclass(frozen=True)
class StoredState:
    """The state before a step: the files of the table at `uri`, of the columns in `schema`, by bucket.

    `visited`: the buckets that are folded also where no row is of them. `keys`: how many columns the keys are.
    """

    buckets: Buckets
    keys: int
    uri: str
    schema: pa.Schema
    files: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    visited: frozenset[int] = frozenset()

    @classmethod
    def none(cls, schema: pa.Schema) -> StoredState:
        """That of a function which has no state yet."""
        return cls(Buckets.of_size(0, 0), 0, "", schema)

    def opened(self, bucket: int) -> OpenBucket:
        """The bucket as it was before the step."""
        rows = [self._read(path, bucket) for path in self.files.get(bucket, ())]
        whole = pa.concat_tables(rows) if rows else self.schema.empty_table()
        return OpenBucket(whole.combine_chunks(), self.keys, tuple(map(len, rows)))

    def _read(self, path: str, bucket: int) -> pa.Table:
        files, table = storage.resolve(self.uri)
        with files.open_input_file(f"{table}/{path}") as handle:
            # A task has one core.
            rows = pq.ParquetFile(handle).read(use_threads=False)
        for name in self.schema.names:
            if name not in rows.column_names:
                # The file is older than the column.
                rows = rows.append_column(name, pa.nulls(len(rows), self.schema.field(name).type))
        rows = rows.select(self.schema.names)
        if rows.schema != self.schema:
            rows = rows.cast(self.schema)
        of_bucket = self.buckets.of(rows.column(HASH).to_numpy()) == bucket
        # After a change of their number, or where somebody has compacted the table, a file has several buckets.
        return rows if of_bucket.all() else rows.filter(pa.array(of_bucket))


class OpenBucket:
    """The state of the keys in one bucket, from which each is taken once at most.

    `of_files`: how many of the rows are of each file of the bucket, in their order.
    """

    def __init__(self, rows: pa.Table, keys: int, of_files: tuple[int, ...]) -> None:
        self._rows = rows
        self._keys = keys
        self._of_files = of_files
        self._taken = np.zeros(len(rows), dtype=bool)

    @cached_property
    def _hashes(self) -> _Hashes:
        return np.asarray(self._rows.column(HASH).to_numpy())

    @cached_property
    def _order(self) -> _Hashes:
        # Files are written in a few runs of rising hashes, which takes this little more than to look at them.
        return np.argsort(self._hashes, kind="stable")

    @cached_property
    def _sorted(self) -> _Hashes:
        return self._hashes[self._order]

    @property
    def rows(self) -> pa.Table:
        """The rows as they are stored."""
        return self._rows

    @property
    def of_files(self) -> tuple[int, ...]:
        """The number of rows that each file of the bucket has of it."""
        return self._of_files

    def rows_of(self, files: Collection[int]) -> pa.Table:
        """The rows of some files of the bucket, by their places among these."""
        begins = [0, *accumulate(self._of_files)]
        return pa.concat_tables([self._rows.slice(begins[file], self._of_files[file]) for file in files])

    def find(self, hashes: _Hashes) -> dict[tuple[Any, ...], StoredKey]:
        """The keys with one of these hashes, by their values: few of a large bucket cost little."""
        return dict(self._at(self.places(hashes)))

    def places(self, hashes: _Hashes) -> _Hashes:
        """The places of the rows with one of these hashes."""
        if not len(self._rows):
            return np.empty(0, np.int64)
        wanted = np.unique(hashes)
        first = np.searchsorted(self._sorted, wanted, side="left")
        counts = np.searchsorted(self._sorted, wanted, side="right") - first
        # Two keys with one hash are as good as never, and each is found.
        steps = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        return self._order[np.repeat(first, counts) + steps]

    def take(self, place: int) -> None:
        """Somebody has this key now."""
        self._taken[place] = True

    def take_due(self, clock: int) -> Iterator[tuple[tuple[Any, ...], StoredKey]]:
        """The keys that nobody has and whose first timer is not after `clock`; they are taken."""
        due = pc.fill_null(pc.less_equal(self._rows.column(DUE).cast(pa.int64()), clock), False)
        places = np.flatnonzero(np.asarray(due.to_numpy()) & ~self._taken)
        self._taken[places] = True
        return self._at(places)

    def untouched(self) -> pa.RecordBatch | None:
        """The rows of the keys that nobody has taken; None where there are none."""
        left = self._rows.filter(pa.array(~self._taken)).combine_chunks() if self._taken.any() else self._rows
        return left.to_batches()[0] if len(left) else None

    def _at(self, places: _Hashes) -> Iterator[tuple[tuple[Any, ...], StoredKey]]:
        if not len(places):
            return iter(())
        # Rows of one chunk stay in one.
        rows = self._rows.take(pa.array(places)).combine_chunks().to_batches()[0]
        hashes, _, *kept = rows.columns
        keys, fields = map(python_values, kept[: self._keys]), map(python_values, kept[self._keys : -1])
        of_keys = zip(*keys, strict=True) if self._keys else repeat(())
        of_fields = zip(*fields, strict=True) if len(kept) > self._keys + 1 else repeat(())
        entries = zip(places.tolist(), python_values(hashes), of_fields, _timers_of(kept[-1]), strict=False)
        # Both are endless where there are no keys, or no fields.
        return zip(of_keys, entries, strict=False)


def _timers_of(column: pa.Array) -> list[Mapping[str, int] | None]:
    # Of most functions no key has one, and to find that out costs nothing.
    return [None] * len(column) if not len(column.values) else python_values(column)


def hash_of(columns: Sequence[Column]) -> Column:
    """The hash of a key, which never changes: state is found by it."""
    return F.xxhash64(*columns) if columns else F.lit(0).cast("bigint")


def in_buckets(rows: DataFrame, buckets: Buckets) -> DataFrame:
    """The rows, by their hash all of a bucket in one partition."""
    most = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    bucket = F.shiftright(HASH, buckets.shift) + F.lit(buckets.count // 2)
    return rows.repartitionById(min(buckets.count, most), bucket.cast("int"))


def marks(spark: SparkSession, buckets: Buckets) -> DataFrame:
    """A row for each bucket, with its least hash."""
    first = F.shiftleft(F.col("id") - F.lit(buckets.count // 2), buckets.shift)
    return spark.range(0, buckets.count, 1, 1).select(first.alias(HASH), F.lit(None).cast("bigint").alias(BATCH))


def state_schema(keyed: Keyed, keys: pa.Schema) -> pa.Schema:
    """The columns of the state, of keys with these columns.

    Those of which a step asks for bounds come first, as Delta keeps bounds of the first columns of a table alone.
    """
    first = [pa.field(HASH, pa.int64()), pa.field(DUE, _TIME)]
    return pa.schema([*first, *keys, *keyed.state_schema, pa.field(TIMERS, pa.map_(pa.string(), _TIME))])


def spark_schema(schema: pa.Schema, partitioned: bool) -> StructType:
    """The columns as Spark knows them, with the day where the table is partitioned by it."""
    from pyspark.sql.pandas.types import from_arrow_schema

    day = [pa.field(DAY, pa.date32())] if partitioned else []
    return from_arrow_schema(pa.schema([*schema, *day]), prefer_timestamp_ntz=True)

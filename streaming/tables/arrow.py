"""Rows of Delta tables by Arrow, so that they are read without Spark: small tables whole, others as datasets.

Datasets of delta-rs are not used: they leave out files by the statistics of the Delta log, which cut instants to
milliseconds and which some files do not have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

from streaming.base import BATCH, DAY, MILLISECOND, pc
from streaming.tables.data_files import files_added
from streaming.tables.storage import files_of

if TYPE_CHECKING:
    from pyarrow import dataset as ds

_SMALL = 16 * 2**20
"""Bytes of files up to which a table is read at once; Arrow's datasets import pandas, which takes longer than that."""
_AT_ONCE = 100_000
"""Rows of a portion."""
_INT96 = "us"
"""Spark may write instants as INT96, of which Arrow makes nanoseconds unless told otherwise; these end in 2262."""


def arrow_schema_of(table: DeltaTable) -> pa.Schema:
    """The columns of an open table as Arrow has them."""
    return pa.schema(table.schema().to_arrow())


def rows_of(table: DeltaTable) -> pa.Table | ds.Dataset:
    """The rows of an open table."""
    added = files_added(table)
    size = sum(added["size_bytes"].to_pylist())
    return read_added(table, added) if size <= _SMALL else _dataset(table, added)


def read_added(table: DeltaTable, added: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows in some of the files that `files_added` lists of an open table, in memory.

    Only the `columns` that are named are read, all where none is.
    """
    schema, files = arrow_schema_of(table), files_of(table)
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    parts = [read_file(files, path, values, schema) for path, values in _files(table, added)]
    return pa.concat_tables(parts) if parts else schema.empty_table()


def read_at_most(table: DeltaTable, added: pa.Table, columns: Sequence[str], most: int) -> pa.Table | None:
    """As `read_added`; None where there are more rows than `most`."""
    return None if sum(added["num_records"].to_pylist()) > most else read_added(table, added, columns)


@dataclass(frozen=True)
class FilesRead:
    """The number of files that were read, and of how many."""

    read: int = 0
    of: int = 0

    def __add__(self, other: FilesRead) -> FilesRead:
        return FilesRead(self.read + other.read, self.of + other.of)

    def __str__(self) -> str:
        return f"{self.read:,} of {self.of:,} files"


@dataclass(frozen=True)
class Between:
    """The instants from `since` to `until`, both inclusive; None for no bound."""

    since: datetime | None = None
    until: datetime | None = None

    def has(self, earliest: datetime, latest: datetime) -> bool:
        """True if an instant between the two may be in it."""
        # Whoever wrote the bounds may have cut them off at the millisecond.
        begins = self.since is None or latest.astimezone(UTC) + MILLISECOND >= self.since
        return begins and (self.until is None or earliest.astimezone(UTC) <= self.until)

    def has_some_of(self, day: date) -> bool:
        """True if an instant of the day is in it."""
        begins = self.since is None or day >= self.since.astimezone(UTC).date()
        return begins and (self.until is None or day <= self.until.astimezone(UTC).date())


def rows_between(
    table: DeltaTable,
    time: str,
    between: Between,
    chosen: Callable[[pa.Table], pa.Table],
    batches: tuple[int, int] | None = None,
) -> tuple[pa.Table, FilesRead]:
    """Those rows of an open table that are `chosen` among the rows of each file, and how many files that were.

    Read are those that `files_between` leaves.
    """
    added, schema, files = files_added(table), arrow_schema_of(table), files_of(table)
    near = files_between(added, time, between, batches)
    parts = [chosen(read_file(files, path, values, schema)) for path, values in _files(table, near)]
    return pa.concat_tables([schema.empty_table(), *parts]), FilesRead(near.num_rows, added.num_rows)


def files_between(added: pa.Table, time: str, between: Between, batches: tuple[int, int] | None = None) -> pa.Table:
    """The files, of those that `files_added` lists, that may have a row with a `time` between two instants.

    Of the batches from the first of `batches` to the second, both included, where they are given. Files are told by
    their partition and bounds; one whose bounds nobody knows may have any, and one of which no row has a time has none.
    """
    near = [place for place in range(added.num_rows) if _may_have(added, place, time, between, batches)]
    return added.take(pa.array(near, pa.int64()))


def _may_have(added: pa.Table, place: int, time: str, between: Between, batches: tuple[int, int] | None) -> bool:
    def value(name: str) -> Any:
        return added.column(name)[place].as_py() if name in added.column_names else None

    day, earliest, latest = value(f"partition.{DAY}"), value(f"min.{time}"), value(f"max.{time}")
    first, last = value(f"min.{BATCH}"), value(f"max.{BATCH}")
    if isinstance(day, date) and not between.has_some_of(day):
        return False
    if batches and first is not None and last is not None and (last < batches[0] or first > batches[1]):
        return False
    if isinstance(earliest, datetime) and isinstance(latest, datetime):
        return between.has(earliest, latest)
    # Bounds are kept of all columns that are not null throughout, or of none.
    return first is None


def read_file(files: fs.FileSystem, path: str, values: Mapping[str, pa.Scalar], schema: pa.Schema) -> pa.Table:
    """Columns of a file: with the values of its partition, and null in those that have been added since."""
    from pyarrow import parquet

    with files.open_input_file(path) as file:
        stored = parquet.ParquetFile(file, coerce_int96_timestamp_unit=_INT96)
        rows = stored.read(columns=[name for name in schema.names if name in stored.schema_arrow.names])
        return _completed(rows, stored.metadata.num_rows, values, schema)


def portions_of(table: DeltaTable, added: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """As `read_added`, but a portion of the rows after the other, so that however many there are take little memory."""
    from pyarrow import parquet

    stored_schema, files = arrow_schema_of(table), files_of(table)
    schema = pa.schema([stored_schema.field(name) for name in columns])
    for path, values in _files(table, added):
        with files.open_input_file(path) as file:
            stored = parquet.ParquetFile(file, coerce_int96_timestamp_unit=_INT96)
            there = [name for name in schema.names if name in stored.schema_arrow.names]
            for rows in stored.iter_batches(_AT_ONCE, columns=there):
                yield _completed(pa.Table.from_batches([rows]), rows.num_rows, values, schema)


def _completed(rows: pa.Table, count: int, values: Mapping[str, pa.Scalar], schema: pa.Schema) -> pa.Table:
    """So many rows of a file, with the values of its partition, and null in columns that it does not have."""
    columns = []
    for column in schema:
        if column.name in values:
            columns.append(pa.repeat(_of_type(values[column.name], column.type), count))
        elif column.name in rows.column_names:
            columns.append(_of_type(rows.column(column.name), column.type))
        else:
            columns.append(pa.nulls(count, column.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _of_type(values: pa.Scalar | pa.ChunkedArray, type_: pa.DataType) -> pa.Scalar | pa.ChunkedArray:
    # A cast, even to the same type, imports all of Arrow's functions.
    return values if values.type == type_ else values.cast(type_)


def _dataset(table: DeltaTable, added: pa.Table) -> ds.Dataset:
    from pyarrow import dataset as ds

    schema, files = arrow_schema_of(table), files_of(table)
    parquet = ds.ParquetFileFormat(read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=_INT96))
    everything = pc.scalar(True)
    fragments = [
        parquet.make_fragment(path, files, partition_expression=reduce(and_, map(_is, values.items()), everything))
        for path, values in _files(table, added)
    ]
    return ds.FileSystemDataset(fragments, schema, parquet, files)


def _files(table: DeltaTable, added: pa.Table) -> list[tuple[str, dict[str, pa.Scalar]]]:
    """The path of each file, and the values of its partition."""
    by = table.metadata().partition_columns
    return [
        (added.column("path")[row].as_py(), {name: added.column(f"partition.{name}")[row] for name in by})
        for row in range(added.num_rows)
    ]


def _is(part: tuple[str, pa.Scalar]) -> pc.Expression:
    name, value = part
    return pc.field(name) == value if value.is_valid else pc.field(name).is_null()

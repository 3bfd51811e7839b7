"""Rows of a table as batches of columns, in an order that follows from the rows alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

_ROWS_AT_ONCE = 10_000
_MICROS = pa.timestamp("us", "UTC")


def open_parquet(files: pa_fs.FileSystem, path: str) -> pq.ParquetFile:
    """A data file; old instants, which Spark may write in a form of its own, in microseconds."""
    return pq.ParquetFile(files.open_input_file(path), coerce_int96_timestamp_unit="us")


def read_columns(files: pa_fs.FileSystem, path: str, names: Sequence[str]) -> pa.Table:
    """The named columns of a data file, null where it is older than the column."""
    with open_parquet(files, path) as file:
        there = set(file.schema_arrow.names)
        rows = file.read(columns=[name for name in names if name in there])
        number = file.metadata.num_rows
    for name in names:
        if name not in there:
            rows = rows.append_column(name, pa.nulls(number))
    return rows.select(list(names)) if names else rows


def as_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A bigint or a timestamp as whole numbers; of an instant its microseconds."""
    instants = pa.types.is_timestamp(column.type)
    return pc.cast(pc.cast(column, _MICROS) if instants else column, pa.int64())


def ordered(rows: pa.Table, first: str, names: Sequence[str]) -> pa.Table:
    """The rows by `first`, then by the columns `names`: equal ones are the same whichever comes first."""
    keys = {first: rows[first]}
    for number, name in enumerate(names):
        for part, leaf in enumerate(_leaves(rows[name])):
            keys[f"{number}.{part}"] = leaf
    by = [(key, "ascending", "at_start") for key in keys]
    return rows.take(pc.sort_indices(pa.table(keys), sort_keys=by))


def positions(units: pa.ChunkedArray) -> pa.Array:
    """The place of each row among those of its unit, from 0; `units` are sorted."""
    numbers = units.to_numpy()
    return pa.array(np.arange(len(numbers)) - np.searchsorted(numbers, numbers, side="left"), pa.int64())


def batches(schema: StructType, columns: dict[str, pa.ChunkedArray | pa.Array]) -> Iterator[pa.RecordBatch]:
    """The columns as Spark wants them, cast to `schema`."""
    wanted = to_arrow_schema(schema, timezone="UTC")
    table = pa.table([_cast(columns[field.name], field.type) for field in wanted], schema=wanted)
    yield from table.combine_chunks().to_batches(max_chunksize=_ROWS_AT_ONCE)


def _cast(column: pa.ChunkedArray | pa.Array, type_: pa.DataType) -> pa.ChunkedArray | pa.Array:
    return column if column.type == type_ else pc.cast(column, type_)


def _leaves(column: pa.ChunkedArray) -> Iterator[pa.ChunkedArray]:
    """The parts of a column that can be compared; of lists and maps their text."""
    if pa.types.is_struct(column.type):
        for index in range(column.type.num_fields):
            yield from _leaves(pc.struct_field(column, index))
    elif pa.types.is_nested(column.type):
        yield pa.chunked_array([pa.array([repr(value) for value in column.to_pylist()], pa.string())])
    elif not pa.types.is_null(column.type):
        yield column
        if pa.types.is_floating(column.type):
            # 0.0 and -0.0 are equal, and another value each.
            bits = pa.int64() if column.type == pa.float64() else pa.int32()
            yield pa.chunked_array([chunk.view(bits) for chunk in column.chunks], bits)

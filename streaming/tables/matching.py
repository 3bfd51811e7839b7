"""Rows that have one of some keys, found by Arrow, which takes a fraction of what Spark takes for the same files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streaming.base import as_type, pc, python_values

_AT_ONCE = 131_072
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class _Level(NamedTuple):
    """A column of the keys: its different values, and which pairs of a beginning and one of these there are, in order.

    A beginning is the place of a pair of the column before.
    """

    name: str
    values: pa.Array
    pairs: np.ndarray[Any, np.dtype[np.int64]]


class Keys:
    """Keys by which rows are looked up, of columns of any types.

    Two values are one where they are written alike: null is null and NaN is NaN, and zeros differ by their signs.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.schema = keys.schema
        self._levels = list[_Level]()
        begins = np.zeros(keys.num_rows, np.int64)
        # To write values out takes longest, which is done for what is left then.
        for name in sorted(keys.column_names, key=lambda name: pa.types.is_nested(keys.schema.field(name).type)):
            forms = _forms(keys[name].combine_chunks())
            values = pc.unique(forms)
            pairs, begins = np.unique(begins * len(values) + _places(forms, values), return_inverse=True)
            self._levels.append(_Level(name, values, pairs))

    def are_of(self, rows: pa.RecordBatch) -> Mask:
        """True for each row that has one of the keys; rows have their columns, of the same types."""
        left, begins = np.arange(rows.num_rows), np.zeros(rows.num_rows, np.int64)
        for name, values, pairs in self._levels:
            column = rows[name] if len(left) == rows.num_rows else rows[name].take(pa.array(left))
            places = _places(_forms(column), values)
            wanted = begins * len(values) + places
            at = np.searchsorted(pairs, wanted)
            is_one = (places >= 0) & (np.append(pairs, -1)[at] == wanted)
            left, begins = left[is_one], at[is_one]
        mask = np.zeros(rows.num_rows, bool)
        mask[left] = True
        return mask


def rows_in_pieces(files: fs.FileSystem, path: str, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Some columns of a Parquet file in pieces, null where it is older than one."""
    with files.open_input_file(path) as handle:
        file = pq.ParquetFile(handle, coerce_int96_timestamp_unit="us")
        there = [name for name in columns.names if name in file.schema_arrow.names]
        # A task has one core, and a driver has others to do.
        for rows in file.iter_batches(_AT_ONCE, columns=there, use_threads=False):
            arrays = [
                as_type(rows[field.name], field.type) if field.name in there else pa.nulls(len(rows), field.type)
                for field in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def rows_among(
    files: fs.FileSystem, paths: Iterable[str], columns: pa.Schema, keys: Keys | None, most: int
) -> pa.Table | None:
    """The rows of Parquet files, of all or those that have one of `keys`, whose columns are among the `columns`.

    None where there are more than `most`.
    """
    found, number = list[pa.RecordBatch](), 0
    for path in paths:
        for rows in rows_in_pieces(files, path, columns):
            found.append(rows if keys is None else rows.filter(pa.array(keys.are_of(rows))))
            number += len(found[-1])
            if number > most:
                return None
    return pa.Table.from_batches(found, columns)


def _forms(values: pa.Array) -> pa.Array:
    """Values that Arrow finds equal where the given ones are written alike."""
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = pc.fill_null(values, 0).to_numpy(zero_copy_only=False)
        bits = np.where(np.isnan(numbers), np.nan, numbers).astype(numbers.dtype).view(f"i{numbers.dtype.itemsize}")
        return pa.array(bits, mask=pc.is_null(values).to_numpy(zero_copy_only=False))
    if pa.types.is_nested(kind):
        return pa.array([repr(value) for value in python_values(values)], pa.large_string())
    return values


def _places(forms: pa.Array, values: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The place of each among the `values`; -1 where it is none of them."""
    places = pc.fill_null(pc.index_in(forms, value_set=values), -1)
    return places.to_numpy(zero_copy_only=False).astype(np.int64)

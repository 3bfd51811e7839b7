"""Reads a table of the lake by the units of its rows, which no compaction and no clean-up changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from streaming.base import DAY, MICROSECOND, MILLISECOND, SourceError, T, to_micros
from streaming.sources.offsets import OffsetReader, Offsets
from streaming.sources.table.placed import BEGIN, UnitTable
from streaming.tables import delta, storage

UNIT, ROWS = "unit", "rows"
"""The parts of an offset: the first unit that is not taken, and how many rows are before it since the query began."""

_ROWS_PER_PIECE = 50_000

Range = tuple[int, int]
"""The units in [first, end)."""
_ROWS_AT_ONCE = 10_000
_MICROS = pa.timestamp("us", "UTC")
_ROUNDED = MILLISECOND // MICROSECOND


class UnitIndex:
    """Counts the rows of each unit. A file never changes, so each is read once, and only if it may hold what is new."""

    def __init__(self, rows: UnitTable) -> None:
        self._rows = rows
        self._counted: dict[str, Counter[int]] = {}
        self._last: tuple[str, int, int] | None = None
        self._found: Counter[int] = Counter()

    def since(self, unit: int) -> Counter[int]:
        """The rows of each unit from `unit` on, as the table is now; nothing where there is no table."""
        table = delta.open_table(self._rows.uri)
        if table is None:
            return Counter()
        asked = (str(table.metadata().id), table.version(), unit)
        if asked != self._last:
            self._counted = {path: self._counts(table, path) for path in paths_since(table, self._rows, unit)}
            self._last, self._found = asked, Counter()
            for counts in self._counted.values():
                self._found.update({number: count for number, count in counts.items() if number >= unit})
        return Counter(self._found)

    def _counts(self, table: DeltaTable, path: str) -> Counter[int]:
        counter = self._counted.get(path)
        if counter is not None:
            return counter
        column = as_numbers(read_columns(storage.files_of(table), path, [self._rows.unit])[self._rows.unit])
        counts = pc.value_counts(column).to_pylist()
        return Counter({entry["values"]: entry["counts"] for entry in counts if entry["values"] is not None})


def paths_since(table: DeltaTable, rows: UnitTable, unit: int, until: int | None = None) -> list[str]:
    """The files of an open table that may have a row of the units in [unit, until), null for no end."""
    return [
        path
        for path, day, least, greatest in _files(table, rows.unit)
        if (greatest is None or greatest >= unit)
        and (until is None or least is None or least < until)
        and not (rows.dated and day is None)
    ]


def _files(table: DeltaTable, unit: str) -> Iterator[tuple[str, Any, int | None, int | None]]:
    actions = table.get_add_actions(flatten=True)
    names = actions.schema.names
    absent = [None] * actions.num_rows
    wanted = ("path", f"partition.{DAY}", f"min.{unit}", f"max.{unit}")
    columns = [actions[name].to_pylist() if name in names else absent for name in wanted]
    for path, day, least, greatest in zip(*columns, strict=True):
        yield path, day, _number(least, 0), _number(greatest, _ROUNDED)


def _number(bound: Any, widened: int) -> int | None:
    """A bound as a number, that of instants `widened`: whoever wrote it may have cut it off at the millisecond."""
    return to_micros(bound.astimezone(UTC)) + widened if isinstance(bound, datetime) else bound


def open_with_id(uri: str, table: str) -> DeltaTable:
    """The open table at `uri`, which still has the id `table`.

    Raises:
        SourceError: it has not, or is gone.
    """
    found = delta.open_table(uri)
    if found is None or str(found.metadata().id) != table:
        raise SourceError(f"the table {uri!r} was removed or replaced while it was read.")
    return found


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


def _positions(units: pa.ChunkedArray) -> pa.Array:
    """The place of each row among those of its unit, from 0; `units` are sorted."""
    numbers = units.to_numpy()
    return pa.array(np.arange(len(numbers)) - np.searchsorted(numbers, numbers, side="left"), pa.int64())


def batches(schema: T.StructType, columns: dict[str, pa.ChunkedArray | pa.Array]) -> Iterator[pa.RecordBatch]:
    """The columns as Spark wants them, cast to `schema`."""
    from pyspark.sql.pandas.types import to_arrow_schema

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


def _identities(rows: pa.Table) -> list[str]:
    """A digest of the values of each row."""
    values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
    return [blake2b(repr(row).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() for row in values]


def origin_fields(*, signed: bool = False) -> list[T.StructField]:
    """The fields of `_origin`: they are the same for a table that is read by its versions."""
    added = [T.StructField("change", T.IntegerType()), T.StructField("identity", T.StringType())] if signed else []
    numbers = [T.StructField(name, T.LongType()) for name in ("unit", "position")]
    times = [T.StructField(name, T.TimestampType()) for name in ("written", "at")]
    return [T.StructField("table", T.StringType()), *numbers, *times, *added]


class UnitReader(OffsetReader):
    """Reads the rows of `columns` from the table with the id `table`; what is not there yet it reads later.

    The newest unit of the table is whole: each is written in one commit, and none gets a row later.
    """

    def __init__(self, rows: UnitTable, table: str, columns: T.StructType, rows_per_batch: int) -> None:
        self._rows = rows
        self._table = table
        self._columns = columns
        self._rows_per_batch = rows_per_batch

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_index"}

    @cached_property
    def _index(self) -> UnitIndex:
        return UnitIndex(self._rows)

    @property
    def schema(self) -> T.StructType:
        """The origin, and the row itself as `payload`."""
        signed = bool(self._rows.sign)
        return T.StructType([*origin_fields(signed=signed), T.StructField("payload", self._columns)])

    @property
    def rows_per_batch(self) -> int:
        return self._rows_per_batch

    def first(self) -> Offsets:
        return {UNIT: BEGIN, ROWS: 0}

    def newest(self, begins: Offsets) -> Offsets:
        return self._after(begins, self._index.since(begins[UNIT]))

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        there = self._index.since(begins[UNIT])
        units = sorted(unit for unit in there if unit < newest[UNIT])
        sums = list(accumulate(there[unit] for unit in units))
        # A unit is taken whole, however large it is.
        most = max(1, sum(total <= rows for total in sums))
        return self._after(begins, {unit: there[unit] for unit in units[:most]})

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[Range]:
        there = self._index.since(begins[UNIT])
        pieces: list[Range] = []
        first, rows = begins[UNIT], 0
        for unit in sorted(unit for unit in there if unit < ends[UNIT]):
            rows += there[unit]
            if rows >= _ROWS_PER_PIECE:
                pieces.append((first, unit + 1))
                first, rows = unit + 1, 0
        return [*pieces, (first, ends[UNIT])] if rows else pieces

    def read(self, piece: Range) -> Iterator[pa.RecordBatch]:
        rows = self._rows
        table = delta.opened(rows.uri)
        files = storage.files_of(table)
        told = (name for name in (rows.unit, rows.written, rows.at, rows.sign, rows.copy) if name)
        names = list(dict.fromkeys((*told, *rows.order, *self._columns.names)))
        parts = [self._within(read_columns(files, path, names), piece) for path in paths_since(table, rows, *piece)]
        if not any(part.num_rows for part in parts):
            return
        whole = pa.concat_tables(parts, promote_options="permissive")
        whole = whole.append_column("", as_numbers(whole[rows.unit]))
        whole = ordered(whole, "", list(dict.fromkeys((*rows.order, *self._columns.names))))
        payload = whole.select(self._columns.names).to_struct_array()
        origin = {
            "table": pa.array([self._table] * whole.num_rows),
            "unit": whole[""],
            "position": _positions(whole[""]),
            "written": whole[rows.written] if rows.written else pa.nulls(whole.num_rows),
            "at": whole[rows.at].cast(pa.timestamp("us", "UTC")),
        }
        if rows.sign:
            own = [name for name in (rows.at, rows.copy, *self._columns.names) if name]
            origin |= {"change": whole[rows.sign], "identity": pa.array(_identities(whole.select(own)))}
        yield from batches(self.schema, {**origin, "payload": payload})

    def _within(self, rows: pa.Table, piece: Range) -> pa.Table:
        units = as_numbers(rows[self._rows.unit])
        return rows.filter(pc.and_(pc.greater_equal(units, piece[0]), pc.less(units, piece[1])))

    @staticmethod
    def _after(begins: Offsets, there: dict[int, int]) -> Offsets:
        if not there:
            return begins
        return {UNIT: max(there) + 1, ROWS: begins[ROWS] + sum(there.values())}

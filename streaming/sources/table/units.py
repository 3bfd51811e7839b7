"""Reads a table of the lake by the units of its rows, which no compaction and no clean-up changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from streaming.sources.offsets import OffsetReader, Offsets
from streaming.sources.table.placed import BEGIN, UnitTable
from streaming.sources.table.row_order import as_numbers, batches, ordered, positions, read_columns
from streaming.sources.table.unit_index import UnitIndex, paths_since
from streaming.tables import delta, storage

UNIT, ROWS = "unit", "rows"
"""The parts of an offset: the first unit that is not taken, and how many rows are before it since the query began."""

_ROWS_PER_PIECE = 50_000

Range = tuple[int, int]
"""The units in [first, end)."""


def origin_fields() -> list[StructField]:
    """The fields of `_origin`: they are the same for a table that is read by its versions."""
    numbers = [StructField(name, LongType()) for name in ("unit", "position")]
    times = [StructField(name, TimestampType()) for name in ("written", "at")]
    return [StructField("table", StringType()), *numbers, *times]


class UnitReader(OffsetReader):
    """Reads the rows of `columns` from the table with the id `table`; what is not there yet it reads later.

    The newest unit of the table is whole: each is written in one commit, and none gets a row later.
    """

    def __init__(self, rows: UnitTable, table: str, columns: StructType, rows_per_batch: int) -> None:
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
    def schema(self) -> StructType:
        """The origin, and the row itself as `payload`."""
        return StructType([*origin_fields(), StructField("payload", self._columns)])

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
        names = list(dict.fromkeys((rows.unit, rows.written, rows.at, *rows.order, *self._columns.names)))
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
            "position": positions(whole[""]),
            "written": whole[rows.written],
            "at": whole[rows.at],
        }
        yield from batches(self.schema, {**origin, "payload": payload})

    def _within(self, rows: pa.Table, piece: Range) -> pa.Table:
        units = as_numbers(rows[self._rows.unit])
        return rows.filter(pc.and_(pc.greater_equal(units, piece[0]), pc.less(units, piece[1])))

    @staticmethod
    def _after(begins: Offsets, there: dict[int, int]) -> Offsets:
        if not there:
            return begins
        return {UNIT: max(there) + 1, ROWS: begins[ROWS] + sum(there.values())}

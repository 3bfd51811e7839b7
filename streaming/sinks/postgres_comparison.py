"""A table of Postgres held against the rows that should be in it, by the table's own types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from psycopg import Cursor, sql

from streaming.sinks import postgres_tables as tables
from streaming.sinks.comparison import Comparison
from streaming.sinks.postgres_staging import stage
from streaming.sinks.sink import Delivered, NumberedBatch

_EXPECTED = sql.Identifier("tidemark_expected")
_NAMED = 5
_UNIT = ("row", "rows")


class TableComparison:
    """Rows that should be in a table, gathered in a transaction, and what comes of it."""

    def __init__(
        self,
        cursor: Cursor[tuple[Any, ...]],
        table: sql.Composable,
        place: str,
        delivered: Delivered,
        generation: int,
    ) -> None:
        self._cursor = cursor
        self._table = table
        self._place = place
        self._delivered = delivered
        self._generation = generation
        self._staged = tables.Staged()
        self._columns: list[str] = []

    def expect(self, rows: pa.Table) -> None:
        """Take rows for some that should be in the table, converted as an insert into it would."""
        cursor, batch = self._cursor, NumberedBatch(self._delivered.name, self._generation, 0, rows)
        columns, key = batch.selected.schema, self._delivered.key
        tables.prepare(cursor, self._table, self._place, columns, key, self._staged, may_create=False)
        stage(cursor, batch, self._staged)
        self._columns = columns.names
        parts = {
            "expected": _EXPECTED,
            "table": self._table,
            "columns": tables.names(self._columns),
            "staged": self._staged.name,
        }
        row = cursor.execute("select to_regclass(%s)", (f"pg_temp.{_EXPECTED.as_string(cursor)}",)).fetchone()
        if row is None or row[0] is None:
            empty = "create temporary table {expected} on commit drop as select {columns} from {table} with no data"
            cursor.execute(sql.SQL(empty).format(**parts))
        cursor.execute(sql.SQL("insert into {expected} ({columns}) select {columns} from {staged}").format(**parts))

    def compared(self) -> Comparison:
        """The table against what is expected: a sum of hashes, and row by row only where that differs."""
        cursor, key = self._cursor, self._delivered.key
        should, there = (_as_text(each, self._columns, key) for each in (_EXPECTED, self._table))
        both = [_one(cursor, _SUMS.format(each)) for each in (should, there)]
        rows = int(both[0][0])
        if both[0] == both[1]:
            return Comparison(rows, 0, _UNIT)
        lacking = _one(cursor, _DIFFERENCE.format(should, there))[0]
        not_expected = _one(cursor, _DIFFERENCE.format(there, should))[0]
        keys = sql.SQL("select distinct k from ({} except all {}) d order by 1 limit {}").format(should, there, _NAMED)
        named = tuple(row[0] for row in cursor.execute(keys)) if key else ()
        # A changed row is lacking as it should be, and is there as it should not.
        return Comparison(rows, max(lacking, not_expected), _UNIT, named)


_SUMS = sql.SQL("select count(*), coalesce(sum(hashtextextended(t, 0)::numeric), 0) from ({}) r")
_DIFFERENCE = sql.SQL("select count(*) from ({} except all {}) d")


def _one(cursor: Cursor[tuple[Any, ...]], query: sql.Composed) -> tuple[Any, ...]:
    row = cursor.execute(query).fetchone()
    assert row is not None
    return row


def _as_text(table: sql.Composable, columns: Sequence[str], key: Sequence[str]) -> sql.Composed:
    """Every row as text, which is there for every type, and its key."""
    return sql.SQL("select row({})::text as k, row({})::text as t from {}").format(
        tables.names(key), tables.names(columns), table
    )

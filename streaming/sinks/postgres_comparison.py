"""A table of Postgres held against the rows that should be in it, value by value.

The audit goes the other way than the delivery did, and shares no conversion with it: what should be there is made into
one text a value in Python, and what is there into the same text by Postgres, which counts instants from 1970 and so
asks no time zone. Only for types that the platform does not have (`uuid`, `jsonb`, arrays and the like) Postgres casts
what is expected too.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from psycopg import Cursor, sql

from streaming.sinks import postgres_tables as tables
from streaming.sinks.encoding import json_texts, plain_texts
from streaming.sinks.postgres_tables import Conversion, array_texts
from streaming.sinks.sink import Comparison, Delivered, NumberedBatch

_EXPECTED = sql.Identifier("tidemark_expected")
_NAMED = 5
_UNIT = ("row", "rows")
_DAY_MICROS = 86_400_000_000

_NUMBER = "case when {0}::text ~ '[.]' then rtrim(rtrim({0}::text, '0'), '.') else {0}::text end"
_FLOAT = "encode(float8send({0}::text::float8 + 0), 'hex')"
_INSTANT = "round((extract(epoch from {0}) * 1000000)::numeric)::text"
_DATE = "case when isfinite({0}) then ({0} - date '1970-01-01')::text else {0}::text end"
_BYTES = "encode({0}, 'hex')"


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
        self._columns: Sequence[Conversion] = ()

    def expect(self, rows: pa.Table) -> None:
        """Take rows for some that should be in the table."""
        cursor = self._cursor
        selected = NumberedBatch(self._delivered.name, self._generation, 0, rows).selected
        there = tables.table_columns(cursor, self._table, self._place, selected.schema, self._delivered.key)
        self._columns = there[: selected.num_columns]
        texts = sql.SQL(", ").join(sql.SQL("{} text").format(sql.Identifier(each.name)) for each in self._columns)
        empty = "create temporary table if not exists {} ({}) on commit drop"
        cursor.execute(sql.SQL(empty).format(_EXPECTED, texts))
        values = [canonical_texts(column, each) for column, each in zip(selected.columns, self._columns, strict=True)]
        names = tables.names([each.name for each in self._columns])
        with cursor.copy(sql.SQL("copy {} ({}) from stdin").format(_EXPECTED, names)) as copy:
            for row in zip(*values, strict=True):
                copy.write_row(row)

    def compared(self) -> Comparison:
        """The table against what is expected: a sum of hashes, and row by row only where that differs."""
        cursor = self._cursor
        should = self._as_text(_EXPECTED, _expected_text)
        there = self._as_text(self._table, _text_there)
        both = [_one(cursor, _SUMS.format(each)) for each in (should, there)]
        rows = int(both[0][0])
        if both[0] == both[1]:
            return Comparison(rows, 0, _UNIT)
        lacking = _one(cursor, _DIFFERENCE.format(should, there))[0]
        not_expected = _one(cursor, _DIFFERENCE.format(there, should))[0]
        keys = sql.SQL("select distinct k from ({} except all {}) d order by 1 limit {}").format(should, there, _NAMED)
        named = tuple(row[0] for row in cursor.execute(keys)) if self._delivered.key else ()
        # A changed row is lacking as it should be, and is there as it should not.
        return Comparison(rows, max(lacking, not_expected), _UNIT, named)

    def _as_text(self, table: sql.Composable, text_of: Callable[[Conversion], sql.Composed]) -> sql.Composed:
        """Every row as text, and its key."""
        texts = {each.name: text_of(each) for each in self._columns}
        return sql.SQL("select row({})::text as k, row({})::text as t from {}").format(
            sql.SQL(", ").join(texts[name] for name in self._delivered.key),
            sql.SQL(", ").join(texts.values()),
            table,
        )


_SUMS = sql.SQL("select count(*), coalesce(sum(hashtextextended(t, 0)::numeric), 0) from ({}) r")
_DIFFERENCE = sql.SQL("select count(*) from ({} except all {}) d")


def canonical_texts(column: pa.ChunkedArray, conversion: Conversion) -> list[str | None]:
    """The values as `_text_there` writes what should have become of them; else as the staged column has them."""
    write = _canonical(column.type, conversion)
    if write is not None:
        values = column.cast(pa.int64()).to_pylist() if pa.types.is_timestamp(column.type) else column.to_pylist()
        if pa.types.is_date(column.type):
            values = column.cast(pa.int32()).to_pylist()
        return [None if value is None else write(value) for value in values]
    if conversion.is_array:
        return array_texts(column)
    return json_texts(column) if pa.types.is_nested(column.type) else plain_texts(column)


def _canonical(type_: pa.DataType, conversion: Conversion) -> Callable[[Any], str] | None:
    """The text of a value for what it becomes; None where Postgres casts what is expected."""
    internal, category = conversion.column.internal, conversion.column.category
    if pa.types.is_boolean(type_):
        return (lambda value: str(value).lower()) if internal == "bool" else None
    if conversion.is_number:
        shortest = pa.types.is_float32(type_) and internal != "float8"
        if internal in ("float4", "float8"):
            return lambda value: struct.pack(">d", (_shortest(value) if shortest else float(value)) + 0.0).hex()
        if internal in ("int2", "int4", "int8", "numeric"):
            return (lambda value: _digits(_shortest(value))) if shortest else _digits
        return None
    if pa.types.is_timestamp(type_):
        if internal == "date":
            return lambda micros: str(micros // _DAY_MICROS)
        return str if internal in ("timestamp", "timestamptz") else None
    if pa.types.is_date(type_):
        if internal == "date":
            return str
        return (lambda days: str(days * _DAY_MICROS)) if internal in ("timestamp", "timestamptz") else None
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return (lambda value: value.hex()) if internal == "bytea" else (lambda value: f"\\x{value.hex()}")
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return str if category == "S" else None
    return None


def _shortest(value: float) -> float:
    """The number that the shortest text of a float of 32 bits is, which Postgres writes for it."""
    return float(str(np.float32(value)))


def _digits(value: float | Decimal) -> str:
    """A number without an exponent and without zeros that say nothing."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite():
        return {"NaN": "NaN", "Infinity": "Infinity"}.get(str(number), "-Infinity")
    text = format(number, "f")
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _text_there(each: Conversion) -> sql.Composed:
    """A value of the table as `canonical_texts` writes what it should be."""
    text, internal = "{0}::text", each.column.internal
    if _canonical(each.field.type, each) is not None:
        shapes = {
            **dict.fromkeys(("int2", "int4", "int8", "numeric"), _NUMBER),
            **dict.fromkeys(("float4", "float8"), _FLOAT),
            **dict.fromkeys(("timestamp", "timestamptz"), _INSTANT),
            "date": _DATE,
            "bytea": _BYTES,
        }
        text = shapes.get(internal, text)
    return sql.SQL(text).format(sql.Identifier(each.name))


def _expected_text(each: Conversion) -> sql.Composed:
    """The expected text: as it is where it was made in Python, else through the types that it comes and goes as."""
    column = sql.Identifier(each.name)
    if _canonical(each.field.type, each) is not None:
        return sql.SQL("{}").format(column)
    staged = sql.SQL("{}::{}").format(column, sql.SQL(each.staged))
    return sql.SQL("({})::text").format(each.of(staged))


def _one(cursor: Cursor[tuple[Any, ...]], query: sql.Composed) -> tuple[Any, ...]:
    row = cursor.execute(query).fetchone()
    assert row is not None
    return row

"""Rows of a batch into the table from which they are applied, by COPY of text that Arrow makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Cursor, sql

from streaming.sinks import postgres_tables as tables
from streaming.sinks.encoding import json_text, json_texts, json_values, plain_texts
from streaming.sinks.postgres_columns import column_type
from streaming.sinks.sink import CHANGE, REASON, REVISION, NumberedBatch

_TEXT = pa.large_string()
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""The signs with a meaning in COPY's text format, the first one first (PostgreSQL: COPY, File Formats, Text Format)."""


def stage(
    cursor: Cursor[tuple[Any, ...]], batch: NumberedBatch, staged_in: tables.Staged, arrays: Collection[str] = ()
) -> None:
    """The rows, in place of what was staged before; `arrays` are the columns whose lists become arrays of Postgres."""
    cursor.execute(sql.SQL("truncate {}").format(staged_in.name))
    selected, count = batch.selected, batch.rows.num_rows
    if not count:
        return
    columns = [
        *(
            _escaped(array_texts(column)) if name in arrays else _text(column)
            for name, column in zip(selected.column_names, selected.columns, strict=True)
        ),
        _told(batch, REVISION, None),
        _told(batch, CHANGE, "upsert"),
        _told(batch, REASON, None),
        pc.cast(pa.chunked_array([pa.array(range(count))]), _TEXT),
    ]
    names = [*selected.column_names, REVISION, CHANGE, REASON]
    copy = sql.SQL("copy {} ({}, {}) from stdin").format(staged_in.name, tables.names(names), tables.PLACE)
    with cursor.copy(copy) as staged:
        staged.write(_lines(columns, count))


def array_texts(column: pa.ChunkedArray) -> list[str | None]:
    """Lists as Postgres writes arrays, elements that are structs or maps as JSON."""
    type_ = column.type
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        type_ = type_.value_type
    # Bytes have a text of their own there.
    of_bytes = pa.types.is_binary(type_) or pa.types.is_large_binary(type_)
    values = column.to_pylist() if of_bytes else json_values(column)
    return [None if value is None else _array(value) for value in values]


def _array(value: Any) -> str:
    match value:
        case None:
            return "NULL"
        case list():
            return f"{{{','.join(map(_array, value))}}}"
        case bool() | int() | float():
            return str(value)
        case bytes():
            text = f"\\x{value.hex()}"
        case dict():
            text = json_text(value)
        case _:
            text = value
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _told(batch: NumberedBatch, name: str, otherwise: str | None) -> pa.ChunkedArray:
    if name in batch.rows.column_names:
        return _text(batch.rows[name])
    return pa.chunked_array([pa.array([otherwise] * batch.rows.num_rows, _TEXT)])


def _lines(columns: Sequence[pa.ChunkedArray], count: int) -> memoryview:
    """One line for each row."""
    fields = pc.binary_join_element_wise(
        *columns, pa.scalar("\t", _TEXT), null_handling="replace", null_replacement="\\N"
    )
    lines = pa.LargeListArray.from_arrays(pa.array([0, count], pa.int64()), fields.combine_chunks())
    return memoryview(pc.binary_join(lines, pa.scalar("\n", _TEXT))[0].as_buffer())


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The values as COPY reads them for the type that `column_type` says."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column_type(column.type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _escaped(column)
    if kind == "jsonb":
        return _escaped(json_texts(column))
    if kind == "bytea":
        values = column.to_pylist()
        return _escaped([None if value is None else f"\\x{value.hex()}" for value in values])
    if kind in ("text", "time", "interval"):
        return _escaped(plain_texts(column))
    # Numbers, booleans, dates and timestamps have nothing to escape.
    return column.cast(_TEXT)


def _escaped(texts: pa.ChunkedArray | list[str | None]) -> pa.ChunkedArray:
    text = pa.chunked_array([pa.array(texts, _TEXT)]) if isinstance(texts, list) else texts.cast(_TEXT)
    for plain, escaped in _ESCAPES:
        text = pc.replace_substring(text, plain, escaped)
    return text

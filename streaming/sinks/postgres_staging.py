"""Rows of a batch into the table from which they are applied, by COPY of text that Arrow makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from psycopg import Cursor, sql

from streaming.sinks import postgres_tables as tables
from streaming.sinks.encoding import json_text
from streaming.sinks.sink import CHANGE, REASON, REVISION, NumberedBatch

_TEXT = pa.large_string()
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))
"""What has a meaning in COPY's text format, the first one first (PostgreSQL: COPY, File Formats, Text Format)."""


def stage(cursor: Cursor[tuple[Any, ...]], batch: NumberedBatch, staged_in: tables.Staged) -> None:
    """The rows, in place of what was staged before."""
    cursor.execute(sql.SQL("truncate {}").format(staged_in.name))
    selected, count = batch.selected, batch.rows.num_rows
    if not count:
        return
    columns = [
        *map(_text, selected.columns),
        _told(batch, REVISION, None),
        _told(batch, CHANGE, "upsert"),
        _told(batch, REASON, None),
        pc.cast(pa.chunked_array([pa.array(range(count))]), _TEXT),
    ]
    names = [*selected.column_names, REVISION, CHANGE, REASON]
    copy = sql.SQL("copy {} ({}, {}) from stdin").format(staged_in.name, tables.names(names), tables.PLACE)
    with cursor.copy(copy) as staged:
        staged.write(_lines(columns, count))


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
    kind = tables.column_type(column.type)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = column.cast(_TEXT)
    elif kind == "jsonb":
        text = _each(column, json_text)
    elif kind == "bytea":
        text = _each(column, lambda value: f"\\x{value.hex()}")
    elif kind == "text":
        text = _each(column, str)
    else:
        # Numbers, booleans, dates and timestamps have nothing to escape.
        return column.cast(_TEXT)
    for plain, escaped in _ESCAPES:
        text = pc.replace_substring(text, plain, escaped)
    return text


def _each(column: pa.ChunkedArray, written: Any) -> pa.ChunkedArray:
    values = [None if value is None else written(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(values, _TEXT)])

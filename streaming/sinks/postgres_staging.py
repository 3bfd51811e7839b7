"""Rows of a batch into the table from which they are applied, by COPY."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from psycopg import Cursor, sql
from psycopg.types.json import Jsonb

from streaming.sinks import postgres_tables as tables
from streaming.sinks.encoding import json_text
from streaming.sinks.sink import CHANGE, REASON, REVISION, NumberedBatch


def stage(cursor: Cursor[tuple[Any, ...]], batch: NumberedBatch, staged_in: tables.Staged) -> None:
    """The rows, in place of what was staged before."""
    cursor.execute(sql.SQL("truncate {}").format(staged_in.name))
    rows, selected = batch.rows, batch.selected
    kinds = [tables.column_type(field.type) for field in selected.schema]
    told = [rows[name].to_pylist() if name in rows.column_names else None for name in (REVISION, CHANGE, REASON)]
    names = [*selected.column_names, REVISION, CHANGE, REASON]
    copy = sql.SQL("copy {} ({}, {}) from stdin").format(staged_in.name, tables.names(names), tables.PLACE)
    columns = [_values(selected.column(place), kind) for place, kind in enumerate(kinds)]
    revisions, changes, reasons = told
    with cursor.copy(copy) as staged:
        for place in range(rows.num_rows):
            staged.write_row(
                (
                    *(column[place] for column in columns),
                    None if revisions is None else revisions[place],
                    "upsert" if changes is None else changes[place],
                    None if reasons is None else reasons[place],
                    place,
                )
            )


def _values(column: pa.ChunkedArray, kind: str) -> list[Any]:
    values = column.to_pylist()
    if kind != "jsonb":
        return values
    return [None if value is None else Jsonb(value, dumps=json_text) for value in values]

"""The columns of a keyed function's tables."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.base import DAY, columns_of
from streaming.declare.columns import ColumnSpec, key_columns
from streaming.declare.stream import Stream

_AT = "Event time of the row, or the time for which the timer was set."


def keyed_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """Keys, what is emitted (as Spark DDL), and what the platform adds.

    A function is handed whole rows and keeps state of earlier ones, so that each value may follow from every column.
    """
    everything = tuple((stream.name, name) for stream in streams for name in stream.columns)
    return (
        *key_columns(streams[0], by),
        ColumnSpec("_at", _AT, "timestamp", everything),
        *(ColumnSpec(each.name, each.comment, each.type, everything) for each in columns_of(emitted)),
        ColumnSpec("_written_at", "When the row was written; a later step has a later one.", "timestamp"),
        ColumnSpec(DAY, "Date of _at, UTC.", "date", everything),
    )

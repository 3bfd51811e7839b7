"""The columns of a keyed function's tables."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.base import AT, BATCH, DAY, RETRACTED, STAMP, WRITTEN_AT, columns_of
from streaming.declare.columns import ColumnSpec, key_columns
from streaming.declare.stream import Stream

_AT = "Event time of the row, or the time for which the timer was set."


SESSION_START, REPLACES_FROM, REPLACES_UNTIL = "_session_start", "_replaces_from", "_replaces_until"
"""Columns of a correction: when the activity session begins, and for which results of the key its rows stand."""


def through_column(streams: Sequence[Stream], stream: Stream) -> str:
    """The column of a correction that tells up to which batch of the stream rows are counted."""
    return "_through_batch" if len(streams) == 1 else f"_through_{stream.name}"


def keyed_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """Keys, what is emitted (as Spark DDL), and what the platform adds.

    A function is handed whole rows and keeps state of earlier ones, so that each value may follow from every column.
    """
    written = ColumnSpec(WRITTEN_AT, "When the row was written; a later step has a later one.", "timestamp")
    return _with_results(streams, by, emitted, written)


def current_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """The same of what is current."""
    corrected = ColumnSpec("_corrected", "Whether a correction stands for the first results.", "boolean")
    return _with_results(streams, by, emitted, corrected)


def corrected_columns(streams: Sequence[Stream], by: tuple[str, ...], emitted: str) -> tuple[ColumnSpec, ...]:
    """The same of corrections."""
    return _with_results(
        streams,
        by,
        emitted,
        ColumnSpec(SESSION_START, "Time of the first row of the key's activity session.", "timestamp"),
        ColumnSpec(REPLACES_FROM, "From when on results of the key are replaced: its first late row.", "timestamp"),
        ColumnSpec(REPLACES_UNTIL, "Until when, exclusive: the session's end, or how far it is.", "timestamp"),
        ColumnSpec("_late_rows", "How many rows of the session came late.", "bigint"),
        ColumnSpec(RETRACTED, "Whether nothing stands for what is replaced, so that there are no values.", "boolean"),
        *(
            ColumnSpec(through_column(streams, each), f"Batch of {each.name} up to which rows are counted.", "bigint")
            for each in streams
        ),
        ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
    )


def late_columns(streams: Sequence[Stream]) -> tuple[ColumnSpec, ...]:
    """The columns of late rows: those of all streams, null where a row's own has no such column."""
    named = dict.fromkeys(name for stream in streams for name in stream.columns)
    return (
        ColumnSpec("_stream", "Whose row it is.", "string"),
        ColumnSpec(AT, "Event time.", "timestamp", tuple((each.name, each.event_time) for each in streams)),
        ColumnSpec(STAMP, "The stamp: the watermark that was in force when the row's batch was read.", "timestamp"),
        ColumnSpec(BATCH, "Number of the batch that brought the row, in its log's own sequence.", "bigint"),
        *(
            ColumnSpec(name, "As it came.", None, tuple((each.name, name) for each in streams if name in each.columns))
            for name in named
        ),
    )


def _with_results(
    streams: Sequence[Stream], by: tuple[str, ...], emitted: str, *added: ColumnSpec
) -> tuple[ColumnSpec, ...]:
    everything = tuple((stream.name, name) for stream in streams for name in stream.columns)
    return (
        *key_columns(streams[0], by),
        ColumnSpec(AT, _AT, "timestamp", everything),
        *(ColumnSpec(each.name, each.comment, each.type, everything) for each in columns_of(emitted)),
        *added,
        ColumnSpec(DAY, "Date of _at, UTC.", "date", everything),
    )

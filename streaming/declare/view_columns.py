"""The columns of a windowed view's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streaming.base import DAY, EVENT_TIME, columns_of
from streaming.declare.aggregates import Aggregate
from streaming.declare.columns import ColumnSpec, key_columns, log_columns, read_from_log
from streaming.declare.functions import WindowFunction
from streaming.declare.stream import Stream
from streaming.declare.suffixes import CORRECTIONS, CURRENT, LATE, OPEN, UPDATES
from streaming.windows import Window

_WRITTEN_AT = ColumnSpec("_written_at", "When the row was written.", "timestamp")
_THROUGH = ColumnSpec("_through_batch", "The batch of the log up to which rows are counted.", "bigint")
_RETRACTED = ColumnSpec(
    "_retracted", "Whether what was published of the window is void, and nothing stands for it.", "boolean"
)
_ADDED = {
    "": (_WRITTEN_AT,),
    CORRECTIONS: (
        ColumnSpec("_late_rows", "How many rows of the window came late.", "bigint"),
        _RETRACTED,
        _THROUGH,
        ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
    ),
    UPDATES: (
        ColumnSpec("_batch", "The batch of the log that brought the late rows, or closed the session.", "bigint"),
        _RETRACTED,
        _WRITTEN_AT,
    ),
    OPEN: (_THROUGH, _WRITTEN_AT),
    CURRENT: (ColumnSpec("_corrected", "Whether an update or a correction stands for the first result.", "boolean"),),
}


def view_columns(
    stream: Stream,
    window: Window,
    by: tuple[str, ...],
    aggregates: Mapping[str, Aggregate],
    function: WindowFunction | None,
    suffix: str,
) -> tuple[ColumnSpec, ...]:
    """The columns of the table with this suffix of a view over `stream`; none where it has no such table for people."""
    bounds = read_from_log(stream, EVENT_TIME, *window.expressions)
    start = ColumnSpec("window_start", "Start of the window, inclusive.", "timestamp", bounds)
    end = ColumnSpec("window_end", "End of the window, exclusive.", "timestamp", bounds)
    if suffix == LATE:
        added = {"_watermark", "_batch"}
        log = log_columns(stream)
        late = tuple(spec for spec in log if spec.name in added or spec.name in stream.columns)
        return (start, end, *_as_read(stream, late))
    if suffix not in _ADDED:
        return ()
    day = ColumnSpec(DAY, "Date of the window's start, UTC.", "date", bounds)
    values = _of_aggregates(stream, aggregates) if function is None else _of_function(stream, function)
    return (*key_columns(stream, by), start, end, *values, *_ADDED[suffix], day)


def _of_aggregates(stream: Stream, aggregates: Mapping[str, Aggregate]) -> Iterator[ColumnSpec]:
    for name, aggregate in aggregates.items():
        meaning = f"{aggregate.meaning[:1].upper()}{aggregate.meaning[1:]}: `{aggregate.sql}`."
        yield ColumnSpec(name, meaning, None, read_from_log(stream, aggregate.sql))


def _of_function(stream: Stream, function: WindowFunction) -> Iterator[ColumnSpec]:
    """A function is handed whole rows, so that each result may follow from every column."""
    everything = tuple((stream.name, name) for name in stream.columns)
    for column in columns_of(function.returns):
        yield ColumnSpec(column.name, f"Result of `{function.name}`. {column.comment}".strip(), column.type, everything)


def _as_read(stream: Stream, columns: tuple[ColumnSpec, ...]) -> Iterator[ColumnSpec]:
    """Columns of the log as a read of it shows them."""
    for spec in columns:
        yield ColumnSpec(spec.name, spec.meaning, spec.type, ((stream.name, spec.name),))

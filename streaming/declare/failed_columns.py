"""The columns of the side output `failed` of operators that bring rows together, of which it is a read of the logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from streaming.base import DAY, ORIGIN
from streaming.declare.columns import ColumnSpec
from streaming.declare.stream import Stream

_WINDOW = (
    ColumnSpec("window_start", "Start of the window, inclusive; null for what is not of one.", "timestamp"),
    ColumnSpec("window_end", "End of the window, exclusive; null for what is not of one.", "timestamp"),
)


def failed_of_view(stream: Stream) -> Iterator[ColumnSpec]:
    """Of a windowed view: rows that it cannot compute, and windows for which its function fails."""
    yield ColumnSpec("error", "What cannot be computed of the row, or what the function raised for it.", "string")
    yield ColumnSpec("row", "The columns of the row, or the key of the window, as JSON.", "string", _read(stream))
    yield from _WINDOW
    yield ColumnSpec("_at", "Event time of the row.", "timestamp", ((stream.name, stream.event_time),))
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in the log's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")
    yield ColumnSpec(DAY, "Date of the event time, or of the window's start, UTC.", "date")


def failed_of_sides(streams: Sequence[Stream], *, windowed: bool) -> Iterator[ColumnSpec]:
    """Of an operator over two streams: pairs, and groups of a window where it is `windowed`."""
    what = "The columns of both rows, or the key of the window" if windowed else "The columns of both rows"
    read = tuple(dict.fromkeys(one for stream in streams for one in _read(stream)))
    yield ColumnSpec("error", "What cannot be computed of the pair, or what the function raised for it.", "string")
    yield ColumnSpec("row", f"{what}, as JSON.", "string", read)
    yield from _WINDOW if windowed else ()
    for side in ("left", "right"):
        yield ColumnSpec(f"_{side}_batch", f"Number of the batch that brought the {side} row to its log.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the sources had the left and the right row.", "struct")
    yield ColumnSpec(DAY, f"Date of {'the start of the window' if windowed else 'the later row'}, UTC.", "date")


def _read(stream: Stream) -> tuple[tuple[str, str], ...]:
    return tuple((stream.name, name) for name in stream.columns)

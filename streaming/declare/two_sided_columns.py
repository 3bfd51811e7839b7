"""The columns of the tables of window joins and co-groups."""

from __future__ import annotations

from collections.abc import Iterator

from streaming.base import DAY, EVENT_TIME
from streaming.declare.columns import ColumnSpec, log_columns, read_from_log
from streaming.declare.input_side import InputSide
from streaming.declare.suffixes import CORRECTIONS, CURRENT, LATE
from streaming.windows import Window

_ADDED = {
    "": (ColumnSpec("_written_at", "When the row was written.", "timestamp"),),
    CORRECTIONS: (
        ColumnSpec("_late_rows", "How many rows of the window came late, on either side.", "bigint"),
        ColumnSpec(
            "_retracted", "Whether what was published of the window is void, and nothing stands for it.", "boolean"
        ),
        ColumnSpec("_through_left", "The batch of the left log up to which rows are counted.", "bigint"),
        ColumnSpec("_through_right", "The batch of the right log up to which rows are counted.", "bigint"),
        ColumnSpec("_corrected_at", "When the correction was computed.", "timestamp"),
    ),
    CURRENT: (ColumnSpec("_corrected", "Whether a correction stands for the first results.", "boolean"),),
}


def two_sided_columns(
    sides: tuple[InputSide, InputSide], window: Window, values: tuple[ColumnSpec, ...], suffix: str
) -> tuple[ColumnSpec, ...]:
    """The columns of the table with this suffix; none where there is no such table for people."""
    bounds = tuple(one for side in sides for one in read_from_log(side.stream, EVENT_TIME, *window.expressions))
    bounds = tuple(dict.fromkeys(bounds))
    start = ColumnSpec("window_start", "Start of the window, inclusive.", "timestamp", bounds)
    end = ColumnSpec("window_end", "End of the window, exclusive.", "timestamp", bounds)
    if suffix == LATE:
        return (*_keys(sides), start, end, *_late(sides))
    if suffix not in _ADDED:
        return ()
    day = ColumnSpec(DAY, "Date of the window's start, UTC.", "date", bounds)
    return (*_keys(sides), start, end, *values, *_ADDED[suffix], day)


def _keys(sides: tuple[InputSide, InputSide]) -> Iterator[ColumnSpec]:
    left, right = sides
    meanings = {spec.name: spec.meaning for spec in log_columns(left.stream)}
    for ours, theirs in zip(left.keys, right.keys, strict=True):
        of = tuple(dict.fromkeys(((left.stream.name, ours), (right.stream.name, theirs))))
        yield ColumnSpec(ours, f"Key. {meanings.get(ours, '')}".strip(), left.stream.types.get(ours), of)


def _late(sides: tuple[InputSide, InputSide]) -> Iterator[ColumnSpec]:
    yield ColumnSpec("_side", "Which side the row came in on: left or right.", "string")
    stamp = "The stamp: the watermark of its log that was in force when the row's batch was read."
    yield ColumnSpec("_watermark", stamp, "timestamp")
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in its log's own sequence.", "bigint")
    for side in sides:
        of = tuple((side.stream.name, name) for name in side.stream.columns)
        yield ColumnSpec(side.name, f"The row, where it came in on the {side.name}.", None, of)

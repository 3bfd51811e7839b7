"""The columns of a selection's tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streaming.base import DAY, ORIGIN, columns_of
from streaming.declare.columns import ColumnSpec, read_from_log
from streaming.declare.functions import RowFunction
from streaming.declare.side import Side, is_column
from streaming.declare.stream import Stream

ELEMENT = "_element"
"""The column that numbers the rows which come of one row of the log, from 0 on."""

_IN_LOG = "Number of the batch that brought the row, in the log's own sequence."
_IN_TABLE = "Number of the step that brought the row, in the table's own sequence."


def side_columns(streams: Sequence[Stream], side: Side, types: Mapping[str, str | None]) -> Iterator[ColumnSpec]:
    """What is selected for an output, with the `types` of its columns."""
    for name, sql in side.selected(streams[0].columns).items():
        of = tuple(one for stream in streams for one in _read(stream, side, sql))
        yield ColumnSpec(name, "" if is_column(sql, name) else f"`{sql}`.", types[name], of)


def function_columns(streams: Sequence[Stream], side: Side, function: RowFunction) -> Iterator[ColumnSpec]:
    """What a function returns: it is handed whole rows, so that each column may follow from all that is selected."""
    selected = side.selected(streams[0].columns).values()
    of = tuple(dict.fromkeys(one for stream in streams for sql in selected for one in _read(stream, side, sql)))
    for column in columns_of(function.returns):
        yield ColumnSpec(column.name, f"Result of `{function.name}`. {column.comment}".strip(), column.type, of)


def failed_columns(streams: Sequence[Stream]) -> tuple[ColumnSpec, ...]:
    """Why a row cannot be computed, the row, and where it is from."""
    columns = tuple((stream.name, name) for stream in streams for name in stream.columns)
    return (
        ColumnSpec("error", "What cannot be computed of the row, or what the function raised.", "string"),
        ColumnSpec("row", "The columns of the stream, as JSON.", "string", columns),
        *added_columns(len(streams), makes_many=False),
    )


def added_columns(streams: int, makes_many: bool) -> Iterator[ColumnSpec]:
    """Where a row is from, of so many streams; `makes_many`: a row of the log may become several."""
    yield ColumnSpec("_at", "Event time of the row.", "timestamp")
    yield ColumnSpec("_batch", _IN_LOG if streams == 1 else _IN_TABLE, "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")
    if makes_many:
        yield ColumnSpec(ELEMENT, "Number of the row among those that come of one row of the log.", "int")
    yield ColumnSpec("_written_at", "When the row was written.", "timestamp")
    yield ColumnSpec(DAY, "Date of the event time, UTC.", "date")


def _read(stream: Stream, side: Side, sql: str) -> tuple[tuple[str, str], ...]:
    """The columns of the stream's log that follow from SQL which may read an element of an exploded array."""
    element = (stream.name, side.element)
    read = read_from_log(stream, sql)
    if side.explode is None or element not in read:
        return read
    array = read_from_log(stream, *side.explode.values())
    return tuple(dict.fromkeys((*array, *(one for one in read if one != element))))

"""The meaning of a table's columns, and the columns of the logs that they are computed from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from streaming.base import DAY, EVENT_TIME, INGESTED_AT, ORDER, ORIGIN, WARNED, names_in
from streaming.declare.stream import Stream


@dataclass(frozen=True)
class ColumnSpec:
    """A column of a table.

    `meaning` is one line for people; `type` a Spark type, None where only Spark knows it. `of` are the columns that its
    values are computed from, as (stream, column of its log). For a column of a log itself they are those that the
    payloads declare.
    """

    name: str
    meaning: str
    type: str | None = None
    of: tuple[tuple[str, str], ...] = ()

    @property
    def unit(self) -> str:
        """The unit of the values: the end of the meaning in brackets, as in `Delay of the departure [min]`."""
        return "" if (found := _UNIT.search(self.meaning)) is None else found[1]

    @property
    def metadata(self) -> dict[str, str]:
        """The texts that a Delta table keeps beside its type: `comment`, which engines show, and `tidemark.unit`."""
        kept = {"comment": self.meaning, "tidemark.unit": self.unit}
        return {name: text for name, text in kept.items() if text}


_UNIT = re.compile(r"\[([^\[\]]+)\]\.?$")
_WINDOW = (
    ColumnSpec("window_start", "Start of the window, inclusive; null for what is not of one.", "timestamp"),
    ColumnSpec("window_end", "End of the window, exclusive; null for what is not of one.", "timestamp"),
)
_ADDED = (
    ColumnSpec("_rejected", "Why the row was rejected, every reason; null for a valid row.", "array<string>"),
    ColumnSpec("_raw", "The payload, byte for byte; of every rejected row.", "binary"),
    ColumnSpec("_origin", "Where the source had the row, and which rejected row it repairs.", "struct"),
    ColumnSpec("_batch", "Number of the batch that brought the row, in the log's own sequence.", "bigint"),
    ColumnSpec(INGESTED_AT, "Processing time: when the row's batch was read.", "timestamp"),
    ColumnSpec("_watermark", "The stamp: the watermark that was in force when the row's batch was read.", "timestamp"),
)

_MASKED_RAW = ColumnSpec(
    "_raw", "The payload of every rejected row, with masked values; null where nobody can mask them in it.", "binary"
)
_WARNED_SPEC = ColumnSpec(
    WARNED, "The rules that a valid row breaks and that only warn; null where there is none.", "array<string>"
)


def log_columns(stream: Stream) -> tuple[ColumnSpec, ...]:
    """The columns of a stream's log: the payload's, the derived ones, and those that the platform adds."""
    payload = {column.name: column for column in stream.format.columns}
    of: dict[str, tuple[tuple[str, str], ...]] = {name: ((stream.name, name),) for name in payload}
    specs = [
        ColumnSpec(name, column.comment or ("Required." if column.required else ""), column.type, of[name])
        for name, column in payload.items()
    ]
    for name, expression in stream.derived.items():
        read = (of.get(column, ()) for column in sorted(names_in(expression)))
        of[name] = tuple(dict.fromkeys(one for columns in read for one in columns))
        specs.append(ColumnSpec(name, f"Derived: `{expression}`.", stream.types[name], of[name]))
    added = [_MASKED_RAW if stream.masked_columns and spec.name == "_raw" else spec for spec in _ADDED]
    warned = [_WARNED_SPEC] if stream.warns else []
    day = ColumnSpec(DAY, f"Date of {stream.event_time}, UTC; null for a rejected row.", "date", of[stream.event_time])
    return (*(_marked(spec, stream) for spec in specs), *added, day, *warned)


def read_from_log(stream: Stream, *expressions: str) -> tuple[tuple[str, str], ...]:
    """The columns of the stream's log that SQL `expressions` of a window's rows read, each once, in their order."""
    names = (stream.event_time if name in (EVENT_TIME, ORDER) else name for name in _names(expressions))
    return tuple((stream.name, name) for name in dict.fromkeys(names))


def key_columns(stream: Stream, by: Iterable[str]) -> Iterator[ColumnSpec]:
    """The columns of a table by which the rows of the stream are told apart."""
    for name in by:
        meaning = f"Key. {meaning_of(stream, name)}".strip()
        yield ColumnSpec(name, meaning, stream.types.get(name), read_from_log(stream, name))


def meaning_of(stream: Stream, column: str) -> str:
    """The meaning of a column of the stream's log; empty where there is no such column."""
    return next((spec.meaning for spec in log_columns(stream) if spec.name == column), "")


def unit_of(stream: Stream, value: str) -> str:
    """The unit of the SQL expression `value` over the stream's rows, in brackets; known where it is just a column."""
    unit = ColumnSpec(value, meaning_of(stream, value.strip("`"))).unit
    return f" [{unit}]" if unit else ""


def _names(expressions: Iterable[str]) -> Iterator[str]:
    for expression in expressions:
        yield from sorted(names_in(expression))


def _marked(spec: ColumnSpec, stream: Stream) -> ColumnSpec:
    """The column that is the event time says so."""
    return replace(spec, meaning=f"Event time. {spec.meaning}".strip()) if spec.name == stream.event_time else spec


def failed_of_view(stream: Stream) -> Iterator[ColumnSpec]:
    """The columns of a windowed view's failures: rows it cannot compute, and windows for which its function fails."""
    yield ColumnSpec("error", "What cannot be computed of the row, or what the function raised for it.", "string")
    yield ColumnSpec("row", "The columns of the row, or the key of the window, as JSON.", "string", _read(stream))
    yield from _WINDOW
    yield ColumnSpec("_at", "Event time of the row.", "timestamp", ((stream.name, stream.event_time),))
    yield ColumnSpec("_batch", "Number of the batch that brought the row, in the log's own sequence.", "bigint")
    yield ColumnSpec(ORIGIN, "Where the row's source had it.", "struct")
    yield ColumnSpec(DAY, "Date of the event time, or of the window's start, UTC.", "date")


def failed_of_sides(streams: Sequence[Stream], *, windowed: bool) -> Iterator[ColumnSpec]:
    """The columns of the failures of a two-sided operator: pairs, and groups of a window where it is `windowed`."""
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

"""Rows for other programs: a frame as JSON lines, or as CSV; Spark writes the values, so each type has one form."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from streaming.base import F, T
from streaming.reading import csv_line

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INSTANT, _LOCAL = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = {"ignoreNullFields": "false", "timestampFormat": _INSTANT, "timestampNTZFormat": _LOCAL}


def json_lines(frame: DataFrame) -> Iterator[str]:
    """A JSON object for each row: every column, null or not; instants as `2013-01-01T10:30:00.000000Z`.

    Payloads are text, in which bytes that are no UTF-8 are U+FFFD.
    """
    columns = [_readable(frame, name).alias(name) for name in frame.columns]
    for row in _rows(frame.select(F.to_json(F.struct(*columns), _JSON))):
        yield row[0]


def csv_lines(frame: DataFrame) -> Iterator[str]:
    """The names of the columns, then a line for each row, as RFC 4180 has it; nulls are empty, nested values JSON."""
    yield csv_line(frame.columns)
    for row in _rows(frame.select(*(_cell(frame, name) for name in frame.columns))):
        yield csv_line(row)


def _rows(frame: DataFrame) -> Iterator[tuple[str, ...]]:
    # A partition at a time: a log need not fit into memory.
    return frame.toLocalIterator(prefetchPartitions=True)


def _type(frame: DataFrame, name: str) -> T.DataType:
    return frame.schema[name].dataType


def _readable(frame: DataFrame, name: str) -> Column:
    column = F.col(f"`{name}`")
    return F.make_valid_utf8(column.cast("string")) if isinstance(_type(frame, name), T.BinaryType) else column


def _cell(frame: DataFrame, name: str) -> Column:
    column = _readable(frame, name)
    match _type(frame, name):
        case T.TimestampType():
            text = F.date_format(column, _INSTANT)
        case T.TimestampNTZType():
            text = F.date_format(column, _LOCAL)
        case T.ArrayType() | T.MapType() | T.StructType():
            text = F.to_json(column, _JSON)
        case _:
            text = column.cast("string")
    return text.alias(name)

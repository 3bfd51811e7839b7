"""Rows as JSON lines and CSV, letter by letter as Spark writes them, so that it does not matter who has read them.

Numbers are as Java writes them from version 19 on: older ones give some more digits than it takes to tell them.
"""

from __future__ import annotations

import base64
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from streaming.base import day_of, instant_of

Writer = Callable[[Any], str]

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE = re.compile(r'["\\\x00-\x1f]')
_PLAIN_FROM, _PLAIN_BELOW = 1e-3, 1e7
"""The doubles that Java writes without an exponent."""


def can_be_written(schema: pa.Schema) -> bool:
    """True if every type is one whose text is known; of others Spark has to say it."""
    return all(_is_known(each.type) for each in schema)


def json_lines(names: Sequence[str], tables: Iterable[pa.Table]) -> Iterator[str]:
    """A JSON object for each row: every column, null or not; instants as `2013-01-01T10:30:00.000000Z`.

    Payloads are text, in which bytes that are no UTF-8 are U+FFFD.
    """
    heads = [f"{_quoted(name)}:" for name in names]
    for table in tables:
        writers = [_json_of(each.type, top=True) for each in table.schema]
        columns = [_plain(column).to_pylist() for column in table.columns]
        for row in zip(*columns, strict=True):
            cells = zip(heads, writers, row, strict=True)
            yield "{" + ",".join(head + _or_null(write, value) for head, write, value in cells) + "}"


def csv_lines(names: Sequence[str], tables: Iterable[pa.Table]) -> Iterator[str]:
    """The names of the columns, then a line for each row, as RFC 4180 has it; nulls are empty, nested values JSON."""
    yield csv_line(names)
    for table in tables:
        writers = [_cell_of(each.type) for each in table.schema]
        columns = [_plain(column).to_pylist() for column in table.columns]
        for row in zip(*columns, strict=True):
            yield csv_line(None if value is None else write(value) for write, value in zip(writers, row, strict=True))


def csv_line(values: Iterable[str | None]) -> str:
    """A line of CSV without its end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def java_double(value: float) -> str:
    """A double as Java writes it, such as `1.0E10`."""
    return _java(value, repr)


def java_float(value: float) -> str:
    """A float of 32 bits as Java writes it."""
    return _java(value, lambda number: np.format_float_scientific(np.float32(number), unique=True))


def _java(value: float, shortest: Callable[[float], str]) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    _, digits, exponent = Decimal(shortest(abs(value))).normalize().as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits))
    sign_text = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign_text}0.0"
    point = len(text) + exponent
    if _PLAIN_FROM <= abs(value) < _PLAIN_BELOW:
        if point <= 0:
            return f"{sign_text}0.{'0' * -point}{text}"
        whole, fraction = text[:point].ljust(point, "0"), text[point:]
        return f"{sign_text}{whole}.{fraction or '0'}"
    return f"{sign_text}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _is_known(type_: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(type_):
        return all(_is_known(each.type) for each in type_)
    if types.is_map(type_):
        return _is_text(type_.key_type) and _is_known(type_.item_type)
    if types.is_list(type_) or types.is_large_list(type_):
        return _is_known(type_.value_type)
    plain = (_is_text, _is_binary, types.is_boolean, types.is_decimal, types.is_date32, types.is_timestamp)
    numbers = (types.is_signed_integer, types.is_float32, types.is_float64)
    return any(is_known(type_) for is_known in (*plain, *numbers))


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column with whole numbers for times, as Python's own end with the year 9999."""
    return column.cast(_counted(column.type))


def _counted(type_: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_timestamp(type_):
        return pa.int64()
    if types.is_date32(type_):
        return pa.int32()
    if types.is_struct(type_):
        return pa.struct([each.with_type(_counted(each.type)) for each in type_])
    if types.is_map(type_):
        return pa.map_(type_.key_field, type_.item_field.with_type(_counted(type_.item_type)))
    if types.is_list(type_) or types.is_large_list(type_):
        return pa.list_(type_.value_field.with_type(_counted(type_.value_type)))
    return type_


def _json_of(type_: pa.DataType, *, top: bool = False) -> Writer:
    """The function that writes a value of a type as JSON; `top`: of a column itself, and not within another value."""
    types = pa.types
    if types.is_struct(type_):
        fields = [(each.name, f"{_quoted(each.name)}:", _json_of(each.type)) for each in type_]
        return lambda value: "{" + ",".join(head + _or_null(write, value[name]) for name, head, write in fields) + "}"
    if types.is_map(type_):
        write_item = _json_of(type_.item_type)
        return lambda pairs: "{" + ",".join(f"{_quoted(key)}:{_or_null(write_item, item)}" for key, item in pairs) + "}"
    if types.is_list(type_) or types.is_large_list(type_):
        write_each = _json_of(type_.value_type)
        return lambda values: "[" + ",".join(_or_null(write_each, value) for value in values) + "]"
    if _is_binary(type_) and not top:
        return lambda value: f'"{base64.b64encode(value).decode()}"'
    if types.is_floating(type_):
        write_number = _cell_of(type_)
        return lambda value: write_number(value) if math.isfinite(value) else f'"{write_number(value)}"'
    if types.is_decimal(type_):
        return str
    write = _cell_of(type_)
    if types.is_boolean(type_) or types.is_integer(type_):
        return write
    return lambda value: _quoted(write(value))


def _or_null(write: Writer, value: Any) -> str:
    return "null" if value is None else write(value)


def _cell_of(type_: pa.DataType) -> Writer:
    """The function that writes a value of a type as a cell of CSV."""
    types = pa.types
    if types.is_nested(type_):
        return _json_of(type_)
    if _is_text(type_):
        return str
    if types.is_boolean(type_):
        return lambda value: "true" if value else "false"
    if types.is_float32(type_):
        return java_float
    if types.is_floating(type_):
        return java_double
    if types.is_decimal(type_):
        return lambda value: format(value, "f")
    if types.is_date32(type_):
        return lambda days: day_of(days).isoformat()
    if types.is_timestamp(type_):
        zone = "Z" if type_.tz is not None else ""
        return lambda micros: _instant(micros) + zone
    return lambda value: value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _instant(micros: int) -> str:
    text = instant_of(micros).isoformat().removesuffix("+00:00")
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction or '0':0<6}"


def _quoted(text: str) -> str:
    return '"' + _TO_ESCAPE.sub(lambda found: _ESCAPED.get(found[0]) or f"\\u{ord(found[0]):04X}", text) + '"'

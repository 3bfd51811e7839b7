"""Rows as text: what files, topics, columns of JSON and HTTP bodies are made of.

Every value that an Arrow column can hold has exactly one text, and the text says which value it was: readers get back
what was computed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streaming.base import day_of, instant_of, pc

_EPOCH, _DAY = datetime(1970, 1, 1), date(1970, 1, 1)
_FIRST_DAY, _LAST_DAY = (date.min - _DAY).days, (date.max - _DAY).days
_SECOND_MICROS = 1_000_000
_PLAIN_SCALE = 6
"""Decimals of a greater scale may be written by Arrow with an exponent."""

Writer = Callable[[Any], Any]


def json_objects(rows: pa.Table) -> list[bytes]:
    """Each row as one UTF-8 JSON object without a line break, in the columns' order.

    Instants are ISO 8601 in UTC, dates `yyyy-mm-dd`, decimals text without an exponent, so that no digit is lost; years
    beyond 9999 have a sign, as ISO 8601 has it. NaN and infinities are the texts `NaN`, `Infinity` and `-Infinity`,
    which JSON has no numbers for. Bytes are text, with `\\x..` for what is no UTF-8 and `\\\\` for a backslash.
    Intervals are ISO 8601 durations in seconds. Maps are objects; a key that is no text is written as the text of its
    value. A map with one key twice, which `has_repeated_keys` finds, is an array of pairs.
    """
    names = rows.column_names
    columns = [json_values(column) for column in rows.columns]
    if not columns:
        return [b"{}"] * rows.num_rows
    return [_encode(dict(zip(names, values, strict=True))).encode() for values in zip(*columns, strict=True)]


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as `json` writes them: numbers, texts, booleans, None, lists and dicts.

    A text that is no UTF-8, which `has_broken_text` finds, is written as bytes are.
    """
    column = _decoded(column)
    write = _writer(column.type)
    try:
        values = bare_values(column)
    except UnicodeDecodeError:
        if len(column) > 1:
            return [value for place in range(len(column)) for value in json_values(column.slice(place, 1))]
        return json_values(column.cast(_in_bytes(column.type)))
    return values if write is None else [None if value is None else write(value) for value in values]


def json_text(value: Any) -> str:
    """One of `json_values` as JSON, without a line break."""
    return _encode(value)


def json_texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column as JSON, each by itself; null where there is none."""
    return [None if value is None else _encode(value) for value in json_values(column)]


def plain_texts(column: pa.ChunkedArray) -> list[str | None]:
    """The values of a column as text, as JSON has it, but without the quotes of what is text there."""
    return [value if value is None or isinstance(value, str) else _encode(value) for value in json_values(column)]


def has_repeated_keys(column: pa.ChunkedArray) -> list[bool]:
    """For each value of a column, whether a map in it has two keys of one text, which no JSON object can have.

    Empty where values of the type have no map in them.
    """
    column = _decoded(column)
    if not _has_map(column.type):
        return []
    # By their bytes, since a text may be no UTF-8.
    bare = _bare(_in_bytes(column.type))
    check = _checker(bare)
    return [value is not None and check(value) for value in column.cast(bare).to_pylist()]


def has_broken_text(column: pa.ChunkedArray) -> list[bool]:
    """For each value of a column, whether a text in it is no UTF-8, which SQL makes of bytes; empty where none is."""
    column = _decoded(column)
    if _in_bytes(column.type) == column.type or _is_valid(column):
        return []
    # One by one, and copied: of a part of a nested column Arrow looks at the whole.
    return [not _is_valid(column.take([place])) for place in range(len(column))]


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def bare_values(column: pa.ChunkedArray) -> list[Any]:
    """The values of a column as Python has them, but times as microseconds and dates as days since 1970.

    Maps are lists of pairs, as Arrow has them.
    """
    values: list[Any] = column.cast(_bare(column.type)).to_pylist()
    return values


def key_writer(type_: pa.DataType) -> Callable[[Any], str]:
    """The function that makes a key of a map, one of `bare_values`, a text."""
    write = _writer(type_)
    return lambda value: _key(write, value)


def contents(column: pa.ChunkedArray) -> list[bytes | None]:
    """The values of a column as bytes: bytes as they are, all others as `plain_texts`."""
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        values: list[bytes | None] = column.to_pylist()
        return values
    return [None if text is None else text.encode() for text in plain_texts(column)]


def parts(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Slices of about `most_bytes` in memory each."""
    files = max(1, -(-rows.nbytes // most_bytes))
    each = max(1, -(-rows.num_rows // files))
    for first in range(0, rows.num_rows, each):
        yield rows.slice(first, each)


def csv_table(rows: pa.Table) -> pa.Table:
    """Rows for CSV: columns of numbers, booleans and text, all others as their texts; nested values are JSON."""
    columns = [column if _fits_csv(column) else _texts(column) for column in map(_decoded, rows.columns)]
    if len(columns) == 1 and columns[0].null_count:
        # A line without anything in it is no row to a reader.
        columns = [_texts(columns[0]).fill_null("")]
    return pa.table(columns, names=rows.column_names)


def instant_text(micros: int, *, utc: bool) -> str:
    """A point in time, in microseconds since 1970, as ISO 8601; of whatever year."""
    return instant_of(micros).isoformat().removesuffix("+00:00") + ("Z" if utc else "")


def date_text(days: int) -> str:
    """A day, counted from 1970-01-01, as ISO 8601; of whatever year."""
    return day_of(days).isoformat()


# Made once: `json.dumps` makes an encoder for each value that is not encoded as it is by default.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _fits_csv(column: pa.ChunkedArray) -> bool:
    """True if Arrow writes the values of a column into CSV as they are."""
    type_ = column.type
    if pa.types.is_floating(type_):
        return bool(pc.all(pc.is_finite(column)).as_py() is not False)
    if pa.types.is_decimal(type_):
        return bool(type_.scale <= _PLAIN_SCALE)
    if pa.types.is_date32(type_):
        bounds = pc.min_max(column.cast(pa.int32())).as_py()
        return bounds["min"] is None or (bounds["min"] >= _FIRST_DAY and bounds["max"] <= _LAST_DAY)
    return _is_plain(type_)


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(plain_texts(column), pa.large_string())])


def _is_plain(type_: pa.DataType) -> bool:
    """True if JSON has all values of a type as they are."""
    is_types = (pa.types.is_integer, pa.types.is_string, pa.types.is_large_string, pa.types.is_boolean)
    return pa.types.is_null(type_) or any(is_type(type_) for is_type in is_types)


def _bare(type_: pa.DataType) -> pa.DataType:
    """A type with integers for what counts microseconds or days: Python's own types end with the year 9999."""
    types = pa.types
    if types.is_timestamp(type_) or types.is_duration(type_) or types.is_time(type_):
        return pa.int64() if type_.bit_width == 64 and type_.unit == "us" else _of_micros(type_)
    return pa.int32() if types.is_date32(type_) else _with_parts(type_, _bare)


def _in_bytes(type_: pa.DataType) -> pa.DataType:
    """A type with bytes for text, which may be no UTF-8."""
    is_text = pa.types.is_string(type_) or pa.types.is_large_string(type_)
    return pa.large_binary() if is_text else _with_parts(type_, _in_bytes)


def _with_parts(type_: pa.DataType, part: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A nested type with other types for its parts; any other type as it is."""
    types = pa.types
    if types.is_struct(type_):
        return pa.struct([field.with_type(part(field.type)) for field in type_])
    if types.is_map(type_):
        key, item = type_.key_field, type_.item_field
        return pa.map_(key.with_type(part(key.type)), item.with_type(part(item.type)))
    if types.is_list(type_) or types.is_large_list(type_):
        of = pa.list_ if types.is_list(type_) else pa.large_list
        return of(type_.value_field.with_type(part(type_.value_type)))
    return type_


def _of_micros(type_: pa.DataType) -> pa.DataType:
    raise TypeError(f"a column of type {type_} is not counted in microseconds; cast it.")


def _writer(type_: pa.DataType) -> Writer | None:
    """The function that makes a value of a bare column one that JSON has; None where it is one already."""
    types = pa.types
    if types.is_floating(type_):
        return _number
    if types.is_timestamp(type_):
        return lambda micros, utc=type_.tz is not None: instant_text(micros, utc=utc)  # type: ignore[misc]
    if types.is_date(type_):
        return date_text
    if types.is_time(type_):
        return lambda micros: (_EPOCH + timedelta(microseconds=micros)).time().isoformat()
    if types.is_duration(type_):
        return _duration
    if types.is_decimal(type_):
        return _digits
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return _bytes
    if types.is_struct(type_):
        fields = {field.name: _writer(field.type) for field in type_}
        return None if not any(fields.values()) else lambda value: _struct(fields, value)
    if types.is_map(type_):
        key, item = key_writer(type_.key_type), _writer(type_.item_type)
        return lambda pairs: _map(key, item, pairs)
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        each = _writer(type_.value_type)
        return None if each is None else lambda values: [None if value is None else each(value) for value in values]
    return None


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _digits(value: Decimal) -> str:
    return format(value, "f")


def _duration(micros: int) -> str:
    seconds, rest = divmod(abs(micros), _SECOND_MICROS)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    return f"PT{'-' if micros < 0 else ''}{seconds}{fraction}S"


def _bytes(value: bytes) -> str:
    return value.replace(b"\\", b"\\\\").decode(errors="backslashreplace")


def _struct(fields: Mapping[str, Writer | None], value: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: inner if inner is None or write is None else write(inner)
        for (name, write), inner in zip(fields.items(), value.values(), strict=True)
    }


def _map(key: Callable[[Any], str], item: Writer | None, pairs: list[tuple[Any, Any]]) -> Any:
    keys = [key(each) for each, _ in pairs]
    values = [value if value is None or item is None else item(value) for _, value in pairs]
    written = dict(zip(keys, values, strict=True))
    return written if len(written) == len(pairs) else [list(pair) for pair in zip(keys, values, strict=True)]


def _key(write: Writer | None, value: Any) -> str:
    written = value if write is None else write(value)
    return written if isinstance(written, str) else _encode(written)


def _has_map(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return True
    return pa.types.is_nested(type_) and any(_has_map(type_.field(place).type) for place in range(type_.num_fields))


def _checker(type_: pa.DataType) -> Callable[[Any], bool]:
    """The check that is true for a value of a bare column, not null, with a map in it that has a key twice."""
    types = pa.types
    if types.is_map(type_):
        key, of_key, of_item = key_writer(type_.key_type), _checker(type_.key_type), _checker(type_.item_type)
        return lambda pairs: (
            len({key(each) for each, _ in pairs}) < len(pairs)
            or any(of_key(each) or (value is not None and of_item(value)) for each, value in pairs)
        )
    if types.is_struct(type_):
        checks = [_checker(field.type) for field in type_]
        return lambda value: any(
            inner is not None and check(inner) for check, inner in zip(checks, value.values(), strict=True)
        )
    if types.is_nested(type_):
        of_each = _checker(type_.value_type)
        return lambda values: any(value is not None and of_each(value) for value in values)
    return lambda value: False

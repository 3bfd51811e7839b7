"""Rows as text: what files, topics and HTTP bodies are made of."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def json_objects(rows: pa.Table) -> list[bytes]:
    """Each row as one UTF-8 JSON object without a line break, in the columns' order.

    Instants are ISO 8601 in UTC, dates `yyyy-mm-dd`, decimals text, so that no digit is lost; NaN and infinities are
    text, which JSON has no numbers for; bytes are text, with `\\x..` for what is no UTF-8.
    """
    others = [field.name for field in rows.schema if not _is_plain(field.type)]
    objects = rows.to_pylist()
    for row in objects:
        for name in others:
            row[name] = _plain(row[name])
    return [_encode(row).encode() for row in objects]


def json_text(value: Any) -> str:
    """One value, such as a list or a struct, as JSON in the same way."""
    return _dumped(value)


def plain_text(value: Any) -> str:
    """One value as text, as JSON has it, but for text itself, instants, dates and decimals, which have no quotes."""
    plain = _plain(value)
    return plain if isinstance(plain, str) else _dumped(plain)


def parts(rows: pa.Table, most_bytes: int) -> Iterator[pa.Table]:
    """Slices of about `most_bytes` in memory each."""
    files = max(1, -(-rows.nbytes // most_bytes))
    each = max(1, -(-rows.num_rows // files))
    for first in range(0, rows.num_rows, each):
        yield rows.slice(first, each)


def flat(rows: pa.Table) -> pa.Table:
    """With lists, structs and maps as JSON text, and bytes as text: what CSV has a place for."""
    for place, field in enumerate(rows.schema):
        column = rows.column(place)
        if pa.types.is_nested(field.type):
            texts = [None if value is None else json_text(value) for value in column.to_pylist()]
            rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = [None if value is None else value.decode(errors="backslashreplace") for value in column.to_pylist()]
            rows = rows.set_column(place, field.name, pa.array(texts, pa.string()))
        elif pa.types.is_timestamp(field.type) and field.type.tz is not None:
            rows = rows.set_column(place, field.name, pc.strftime(column, "%Y-%m-%dT%H:%M:%SZ"))
    return rows


# Made once: `json.dumps` makes an encoder for each value that is not encoded as it is by default.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _dumped(value: Any) -> str:
    return _encode(_plain(value))


def _is_plain(type_: pa.DataType) -> bool:
    """Whether JSON has all values of a type as they are."""
    return any(is_type(type_) for is_type in (pa.types.is_integer, pa.types.is_string, pa.types.is_boolean))


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case datetime():
            return value.isoformat() if value.tzinfo is None else _utc(value)
        case date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case bytes():
            return value.decode(errors="backslashreplace")
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    return value


def _utc(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")

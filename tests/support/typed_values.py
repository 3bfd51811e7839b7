"""Values of every type that a row may have, and readers of their texts that share nothing with whoever wrote them.

The rows are made once from a table of extremes by type, and from values that a fixed seed draws: each target is given
the same ones, and what its reader gets back has to be what `as_python` says.
"""

from __future__ import annotations

import math
import random
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streaming.sinks.sink import REVISION, TIME

_ROWS = 60
_UTC = pa.timestamp("us", "UTC")
_INSTANTS = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
    datetime(2026, 3, 8, 2, 30, tzinfo=UTC),
    datetime(2026, 11, 1, 5, 30, 0, 1, UTC),
)
_TEXTS = ("", " ", "a", 'a"b', "a\\b", "\\N", "null", "a,b", "a\nb", "\r", "é𝄞", "\u2028", "NaN", "{}", "'", "\t")
_DIGITS = 38

EXTREMES: Mapping[pa.DataType, Sequence[Any]] = {
    pa.bool_(): (True, False),
    pa.int8(): (-128, 127, 0),
    pa.int16(): (-(2**15), 2**15 - 1, 0),
    pa.int32(): (-(2**31), 2**31 - 1, 0),
    pa.int64(): (-(2**63), 2**63 - 1, 2**53 + 1, 0),
    pa.float32(): (math.nan, math.inf, -math.inf, -0.0, 0.0, struct.unpack("<f", struct.pack("<f", 0.1))[0], 2.0**-149),
    pa.float64(): (math.nan, math.inf, -math.inf, -0.0, 0.0, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, 1e16, 1e22),
    pa.decimal128(12, 2): (Decimal("0.00"), Decimal("-9999999999.99"), Decimal("1.10")),
    pa.decimal128(_DIGITS, 0): (Decimal(10**_DIGITS - 1), Decimal(1 - 10**_DIGITS), Decimal(0)),
    pa.decimal128(_DIGITS, 18): (
        Decimal("0E-18"),
        Decimal("1E-18"),
        Decimal("-12345678901234567890.123456789012345678"),
    ),
    pa.string(): _TEXTS,
    pa.binary(): (b"", b"a", b"\xff", b"\\xff", b"\\", b"\x00\x01", "é".encode()),
    pa.date32(): (date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1), date(1969, 12, 31)),
    _UTC: _INSTANTS,
    pa.timestamp("us"): tuple(instant.replace(tzinfo=None) for instant in _INSTANTS),
    pa.time64("us"): (time(0), time(23, 59, 59, 999_999), time(12)),
    pa.duration("us"): (timedelta(0), timedelta(microseconds=-1), timedelta(days=400, seconds=1)),
}
"""The values of each type that programs stumble over."""

NESTED: Sequence[pa.DataType] = (
    pa.list_(pa.int64()),
    pa.list_(pa.string()),
    pa.list_(pa.list_(pa.decimal128(12, 2))),
    pa.list_(_UTC),
    pa.struct([("name", pa.string()), ("price", pa.decimal128(38, 18)), ("at", _UTC), ("share", pa.float64())]),
    pa.map_(pa.string(), pa.int64()),
    pa.map_(pa.int64(), pa.float64()),
    pa.map_(pa.date32(), pa.decimal128(12, 2)),
    pa.map_(pa.string(), pa.list_(pa.struct([("day", pa.date32()), ("more", pa.map_(pa.string(), pa.string()))]))),
)


def typed_rows() -> pa.Table:
    """A column of each type, called `c0`, `c1` and so on, with every extreme and a null; and what a batch needs."""
    chance = random.Random(20_260_302)
    columns = {}
    for place, type_ in enumerate((*EXTREMES, *NESTED)):
        extremes = EXTREMES.get(type_, ())
        values = [*extremes, None, *(_drawn(type_, chance) for _ in range(_ROWS - 1 - len(extremes)))]
        columns[f"c{place}"] = pa.array(values, type_)
    times = [datetime(2026, 3, 2, tzinfo=UTC) + timedelta(hours=place) for place in range(_ROWS)]
    return pa.table({**columns, REVISION: list(range(_ROWS)), TIME: pa.array(times, _UTC)})


def selected(rows: pa.Table) -> pa.Table:
    """The columns that a reader sees."""
    return rows.select([name for name in rows.column_names if not name.startswith("_")])


def as_python(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as Python has them, with maps as dicts whose keys are text, and floats that can be compared."""
    rows = selected(rows)
    types = {field.name: field.type for field in rows.schema}
    return [{name: _comparable(types[name], value) for name, value in row.items()} for row in rows.to_pylist()]


def read_json(row: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """A row that `json` has read, as `as_python` has it."""
    return {name: _of_json(schema.field(name).type, value) for name, value in row.items()}


def read_text(type_: pa.DataType, text: str, loads: Callable[[str], Any]) -> Any:
    """A value that is a text of its own, such as in CSV; `loads` reads JSON."""
    if pa.types.is_nested(type_):
        return _of_json(type_, loads(text))
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(type_):
        return int(text)
    return _of_json(type_, text)


def _drawn(type_: pa.DataType, chance: random.Random) -> Any:
    if chance.random() < 0.1:
        return None
    if pa.types.is_struct(type_):
        return {field.name: _drawn(field.type, chance) for field in type_}
    if pa.types.is_map(type_):
        keys = {key for key in (_drawn(type_.key_type, chance) for _ in range(3)) if key is not None}
        return [(key, _drawn(type_.item_type, chance)) for key in sorted(keys)]
    if pa.types.is_list(type_):
        length = chance.randrange(1, 4)
        rectangular = pa.types.is_list(type_.value_type)
        inner = [_drawn(type_.value_type, chance) for _ in range(length)]
        return [[Decimal("1.10"), None]] * length if rectangular else inner
    return chance.choice(EXTREMES[type_])


def _comparable(type_: pa.DataType, value: Any) -> Any:
    if value is None:
        return None
    if pa.types.is_floating(type_):
        # NaN is none of itself, and negative zero is equal to zero.
        return struct.pack(">d", math.nan if math.isnan(value) else value)
    if pa.types.is_struct(type_):
        return {field.name: _comparable(field.type, value[field.name]) for field in type_}
    if pa.types.is_map(type_):
        return {str(key): _comparable(type_.item_type, item) for key, item in value}
    if pa.types.is_list(type_):
        return [_comparable(type_.value_type, each) for each in value]
    return value


def _of_json(type_: pa.DataType, value: Any) -> Any:
    types = pa.types
    if value is None:
        return None
    if types.is_struct(type_):
        return {field.name: _of_json(field.type, value[field.name]) for field in type_}
    if types.is_map(type_):
        return {key: _of_json(type_.item_type, item) for key, item in value.items()}
    if types.is_list(type_):
        return [_of_json(type_.value_type, each) for each in value]
    if types.is_floating(type_):
        assert not isinstance(value, str) or value in ("NaN", "Infinity", "-Infinity") or re.match("-?[0-9]", value)
        return _comparable(type_, float(value))
    if types.is_decimal(type_):
        assert isinstance(value, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value)
        return Decimal(value)
    if types.is_binary(type_):
        return re.sub(rb"\\(?:\\|x(..))", _byte, value.encode())
    if types.is_date(type_):
        return date.fromisoformat(value)
    if types.is_timestamp(type_):
        return datetime.fromisoformat(value)
    if types.is_time(type_):
        return time.fromisoformat(value)
    if types.is_duration(type_):
        (seconds,) = re.fullmatch(r"PT(-?[0-9.]+)S", value).groups()  # type: ignore[union-attr]
        return timedelta(microseconds=int(Decimal(seconds) * 1_000_000))
    return value


def _byte(match: re.Match[bytes]) -> bytes:
    return b"\\" if match[1] is None else bytes.fromhex(match[1].decode())

"""Rows as records of Avro: each value is itself to a reader of the schema, or its row is refused with the reason."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from streaming.formats import Avro
from streaming.sinks.encoding import bare_values
from streaming.sinks.kafka.avro import AvroValues, record_writer

MAX = 2**63 - 1
UTC_MICROS = pa.timestamp("us", "UTC")


def read_back(type_: pa.DataType, schema: Any, *values: Any) -> list[Any]:
    """What a reader of the schema gets of each value; the reason where it has none."""
    text = json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": schema}]})
    rows = pa.table({"v": pa.array(values, type_)})
    encoded = AvroValues(Avro('{"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}'))
    encoded._schema = fastavro.parse_schema(json.loads(text))
    return [
        str(content).removeprefix("avro: the row is no record of the schema (")[:-1]
        if isinstance(content, ValueError)
        else fastavro.schemaless_reader(BytesIO(content), encoded._schema)["v"]  # type: ignore[index,call-overload]
        for content in encoded(["t"] * rows.num_rows, rows)
    ]


def logical(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": name, **more}


INSTANT = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


@pytest.mark.parametrize(
    ("type_", "schema", "values"),
    [
        (pa.int64(), "int", (2**31 - 1, -(2**31))),
        (pa.int64(), ["null", "long"], (MAX, -MAX - 1, None)),
        (pa.float64(), "double", (0.1, float("inf"), 5e-324)),
        (pa.float64(), "float", (0.5, float("-inf"))),
        (pa.int64(), "double", (2**53,)),
        (pa.decimal128(38, 18), "double", (Decimal("0.1"),)),
        (pa.string(), "string", ("", "é𝄞", "\0")),
        (pa.binary(), "bytes", (b"", b"\xff")),
        (pa.bool_(), ["boolean", "null"], (True, False, None)),
        (pa.decimal128(38, 18), logical("bytes", "decimal", precision=38, scale=18),
         (Decimal("12345678901234567890.123456789012345678"), Decimal("-1E-18"))),
        (pa.decimal128(12, 2), logical("bytes", "decimal", precision=12, scale=4), (Decimal("1.10"), Decimal("-0.01"))),
        (pa.decimal128(10, 3), logical("bytes", "decimal", precision=10, scale=2),
         (Decimal("1.500"), Decimal("0.000"), Decimal("-99999.990"))),
        (pa.decimal128(10, 3), logical("bytes", "decimal", precision=2), (Decimal("-99.000"), Decimal("0.000"))),
        (pa.decimal128(10, 3), {"name": "F", **logical("fixed", "decimal", precision=4, scale=1, size=2)},
         (Decimal("-1.500"), Decimal("999.900"))),
        (pa.int64(), logical("bytes", "decimal", precision=12, scale=4), (5, -99_999_999, 0)),
        (pa.date32(), logical("int", "date"), (date(1, 1, 1), date(9999, 12, 31))),
        (UTC_MICROS, logical("long", "timestamp-micros"), (datetime(1, 1, 1, tzinfo=UTC), INSTANT)),
        (UTC_MICROS, logical("long", "timestamp-millis"), (INSTANT, datetime(1969, 12, 31, 23, tzinfo=UTC))),
        (pa.timestamp("us"), logical("long", "local-timestamp-micros"), (datetime(2026, 1, 1, 0, 0, 0, 1),)),
        (pa.time64("us"), logical("long", "time-micros"), (time(23, 59, 59, 999_999),)),
        (pa.time64("us"), logical("int", "time-millis"), (time(23, 59, 59, 999_000),)),
        (pa.string(), {"type": "enum", "name": "E", "symbols": ["a", "b"]}, ("a", "b")),
        (pa.list_(pa.int64()), {"type": "array", "items": ["null", "int"]}, ([1, None], [])),
    ],
)  # fmt: skip
def test_a_value_is_read_back_as_it_was_computed(type_: pa.DataType, schema: Any, values: tuple[Any, ...]) -> None:
    read = read_back(type_, schema, *values)
    assert [float(value) if isinstance(value, Decimal) and schema == "double" else value for value in values] == read


def test_maps_are_maps_and_structs_are_records_at_every_depth() -> None:
    inner = {
        "type": "record",
        "name": "I",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "long", "default": 7}],
    }
    schema = {"type": "map", "values": ["null", {"type": "map", "values": inner}]}
    type_ = pa.map_(pa.int64(), pa.map_(pa.string(), pa.struct([("x", pa.int64())])))
    assert read_back(type_, schema, [(5, [("a", {"x": 1})]), (6, None)], []) == [
        {"5": {"a": {"x": 1, "y": 7}}, "6": None},
        {},
    ]
    twice = [inner, {"type": "array", "items": "I"}]
    record = {
        "type": "record",
        "name": "O",
        "fields": [{"name": "a", "type": twice[0]}, {"name": "b", "type": twice[1]}],
    }
    struct = pa.struct([("x", pa.int64()), ("y", pa.int64())])
    value = {"a": {"x": 1, "y": 2}, "b": [{"x": 3, "y": 4}]}
    assert read_back(pa.struct([("a", struct), ("b", pa.list_(struct))]), record, value) == [value]


@pytest.mark.parametrize(
    ("type_", "schema", "value", "reason"),
    [
        (pa.int64(), "int", 2**31, "v: 2147483648 is out of the range of 'int'"),
        (pa.int64(), "int", -(2**31) - 1, "v: -2147483649 is out of the range of 'int'"),
        (pa.int64(), "int", None, "v is null"),
        (pa.int64(), ["null", "int"], 2**31, "v: 2147483648 is out of the range of 'int'"),
        (pa.float64(), "float", 0.1, "v: 0.1 would not be the same number as 'float'"),
        (pa.float64(), "float", 1e300, "v: 1e+300 would not be the same number as 'float'"),
        (pa.int64(), "double", 2**53 + 1, "v: 9007199254740993 would not be the same number as 'double'"),
        (pa.decimal128(38, 18), "double", Decimal("0.333333333333333333"),
         "v: 0.333333333333333333 would not be the same number as 'double'"),
        (UTC_MICROS, logical("long", "timestamp-millis"), datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
         "v: 1 microseconds since 1970 or midnight cannot be 'timestamp-millis'"),
        (UTC_MICROS, logical("long", "local-timestamp-micros"), INSTANT,
         "v is of type timestamp[us, tz=UTC], which cannot be 'local-timestamp-micros'"),
        (pa.timestamp("us"), logical("long", "timestamp-micros"), datetime(2026, 1, 1),
         "v is of type timestamp[us], which cannot be 'timestamp-micros'"),
        (UTC_MICROS, "long", INSTANT, "v is of type timestamp[us, tz=UTC], which cannot be 'long'"),
        (UTC_MICROS, "string", INSTANT, "v is of type timestamp[us, tz=UTC], which cannot be 'string'"),
        (pa.date32(), logical("long", "timestamp-micros"), date(2026, 1, 1),
         "v is of type date32[day], which cannot be"),
        (pa.int64(), "string", 1, "v is of type int64, which cannot be 'string'"),
        (pa.bool_(), "int", True, "v is of type bool, which cannot be 'int'"),
        (pa.float64(), logical("bytes", "decimal", precision=4, scale=2), 0.5,
         "v is of type double, which cannot be 'decimal'"),
        (pa.decimal128(12, 3), logical("bytes", "decimal", precision=12, scale=2), Decimal("1.005"),
         "v: 1.005 has no place in decimal(12,2)"),
        (pa.decimal128(12, 2), logical("bytes", "decimal", precision=4, scale=2), Decimal("100.00"),
         "v: 100.00 has no place in decimal(4,2)"),
        (pa.string(), {"type": "enum", "name": "E", "symbols": ["a", "b"]}, "c", "v: 'c' is none of a, b"),
        (pa.binary(), {"type": "fixed", "name": "F", "size": 2}, b"abc", ""),
        (pa.list_(pa.int64()), {"type": "array", "items": "int"}, [1, 2**40], "v[]: 1099511627776 is out of the range"),
        (pa.list_(pa.int64()), {"type": "array", "items": "int"}, [None], "v[] is null"),
        (pa.map_(pa.string(), pa.int64()), {"type": "map", "values": "int"}, [("a", None)], "v{} is null"),
        (pa.struct([("x", pa.int64()), ("z", pa.int64())]),
         {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, {"x": 1, "z": 2},
         "v has a field 'z', which the schema does not have"),
        (pa.struct([("x", pa.int64())]), {"type": "record", "name": "I", "fields": [{"name": "y", "type": "int"}]},
         {"x": None}, "v.y is null"),
    ],
)  # fmt: skip
def test_a_value_that_the_schema_would_change_is_refused(
    type_: pa.DataType, schema: Any, value: Any, reason: str
) -> None:
    (read,) = read_back(type_, schema, value)
    assert isinstance(read, str) and read.startswith(reason)


@pytest.mark.parametrize(
    ("schema", "written"),
    [
        (logical("long", "timestamp-micros"), 253_402_300_800_000_000),
        (logical("long", "timestamp-nanos"), None),
    ],
)
def test_an_instant_of_any_year_is_a_number_where_it_has_a_place(schema: Any, written: int | None) -> None:
    parsed = fastavro.parse_schema({"type": "record", "name": "R", "fields": [{"name": "v", "type": schema}]})
    column = pa.chunked_array([pa.array([253_402_300_800_000_000], pa.int64()).cast(UTC_MICROS)])
    write = record_writer(pa.schema([("v", UTC_MICROS)]), parsed)
    (value,) = bare_values(column)
    if written is None:
        with pytest.raises(ValueError, match="cannot be 'timestamp-nanos'"):
            write({"v": value})
    else:
        assert write({"v": value}) == {"v": written}


def test_columns_that_the_schema_does_not_have_are_left_out_and_defaults_are_kept() -> None:
    fields = [
        {"name": "a", "type": "int"},
        {"name": "b", "type": "int", "default": 9},
        {"name": "c", "type": ["null", "int"]},
    ]
    parsed = fastavro.parse_schema({"type": "record", "name": "R", "fields": fields})
    write = record_writer(pa.schema([("a", pa.int64()), ("more", pa.string())]), parsed)
    assert write({"a": 1, "more": "x"}) == {"a": 1, "c": None}

"""Avro's rules of resolution, without Spark: what one schema wrote is read by another, or refused with its place."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from itertools import count
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streaming.base.errors import DeclarationError
from streaming.formats.avro import Avro
from streaming.formats.avro_decoder import AvroDecoder
from streaming.formats.avro_types import parsed
from tests.support.decoders import Decoded, arrow_schema, decode
from tests.support.registry import registry

Schema = Any
HEAD = b"\0\0\0\0\1"


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    """A record of fields: pairs of name and type, or fields as Avro has them."""
    return {
        "type": "record",
        "name": name,
        "fields": [field if isinstance(field, dict) else {"name": field[0], "type": field[1]} for field in fields],
        **more,
    }


def logical(type_: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "logicalType": logical_type, **more}


def decimal(precision: int, scale: int = 0) -> dict[str, Any]:
    return logical("bytes", "decimal", precision=precision, scale=scale)


def named(type_: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": type_, "name": name, **more}


def encoded(schema: Schema, value: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return stream.getvalue()


def decoder_of(declared: Schema, url: str | None) -> AvroDecoder:
    form = Avro(json.dumps(declared), registry=url)
    names = tuple(column.name for column in form.columns)
    return AvroDecoder(names, arrow_schema(form.columns), url, parsed(form.schema))


class _Answers:
    """A client of a registry with one schema, and those that it refers to."""

    def __init__(self, written: Schema) -> None:
        self._written = json.dumps(written)

    def get_schema(self, identity: int, fmt: str | None = None) -> Any:
        from confluent_kafka.schema_registry import Schema as Registered

        return Registered(self._written, "AVRO")


def resolved(written: Schema, declared: Schema, *payloads: bytes) -> list[Decoded]:
    """Payloads of one schema, decoded by another in one batch."""
    decoder = decoder_of(declared, "http://registry")
    rows = [decoder._row(HEAD + payload, _Answers(written)) for payload in payloads]
    # As the decoder itself builds its columns.
    arrays = decoder._built(rows)
    columns = [array.to_pylist() for array in arrays]
    names = decoder.columns
    return [
        Decoded(
            {name: columns[place][number] for place, name in enumerate(names)},
            columns[-3][number],
            {name: reason for name, reason in (columns[-2][number] or {}).items() if reason is not None},
            tuple(columns[-1][number] or ()),
        )
        for number in range(len(payloads))
    ]


def one(written: Schema, declared: Schema, value: Any) -> Decoded:
    """A value of the type `written` in a field `v`, read as the type `declared`."""
    (read,) = resolved(record(("v", written)), record(("v", declared)), encoded(record(("v", written)), {"v": value}))
    return read


MILLIS, MICROS, NANOS = (logical("long", f"timestamp-{unit}") for unit in ("millis", "micros", "nanos"))
LOCAL_MILLIS = logical("long", "local-timestamp-millis")
TIME_MILLIS, TIME_MICROS = logical("int", "time-millis"), logical("long", "time-micros")
DATE = logical("int", "date")
UUID = logical("string", "uuid")
MANY = {"type": "array", "items": "long"}
FIXED = named("fixed", "F", size=2)
ENUM = named("enum", "E", symbols=["a", "b", "c"])
FEWER = named("enum", "E", symbols=["a"])
DEFAULTED = named("enum", "E", symbols=["a", "other"], default="other")
AN_INSTANT = datetime(2026, 1, 1, tzinfo=UTC)
A_UUID = "6fa459ea-ee8a-3ca4-894e-db77e160355e"
SEVERAL = ["null", "int", "long", "string", named("record", "X", fields=[{"name": "a", "type": "int"}])]
INT_WORDS, LONG_WORDS = "a whole number within int", "a whole number within bigint"
INSTANT_WORDS = "an instant of the years 1 to 9999"


@pytest.mark.parametrize(
    ("written", "declared", "value", "expected"),
    [
        ("int", "long", 5, 5),
        ("int", "double", -5, -5.0),
        ("long", "float", 2**24, 2.0**24),
        ("long", "double", 2**60, 2.0**60),
        ("long", "double", -(2**63), -(2.0**63)),
        ("float", "double", 0.5, 0.5),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("boolean", "boolean", True, True),
        ("int", ["null", "int"], 5, 5),
        (["null", "int"], "int", 5, 5),
        (["null", "int"], ["null", "long"], None, None),
        (SEVERAL, ["null", "long"], 5, 5),
        (SEVERAL, ["null", "long"], 2**40, 2**40),
        (SEVERAL, ["null", "string"], "x", "x"),
        (SEVERAL, ["null", "long"], None, None),
        (["int"], "int", 5, 5),
        ("null", ["null", "int"], None, None),
        # The logical type of the reader alone counts, and otherwise that of the writer.
        ("long", MILLIS, 1_767_225_600_000, AN_INSTANT),
        ("int", MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
        (MILLIS, MICROS, 1_767_225_600_000, AN_INSTANT),
        (MICROS, MILLIS, 1_767_225_600_000_001, AN_INSTANT + timedelta(microseconds=1)),
        (NANOS, MILLIS, 1_000, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (MILLIS, NANOS, 5, 5_000_000),
        (NANOS, NANOS, 1_767_225_600_000_000_001, 1_767_225_600_000_000_001),
        (MILLIS, "long", 7, 7),
        ("long", LOCAL_MILLIS, 3_600_000, datetime(1970, 1, 1, 1)),
        (TIME_MILLIS, TIME_MICROS, 5, 5_000),
        (TIME_MILLIS, TIME_MILLIS, 3_600_000, 3_600_000),
        ("int", TIME_MILLIS, 5, 5),
        ("int", DATE, 20_454, date(2026, 1, 1)),
        (DATE, "int", 20_454, 20_454),
        ("string", UUID, A_UUID, A_UUID),
        (UUID, "string", A_UUID, A_UUID),
        (
            named("fixed", "F", size=16),
            named("fixed", "F", size=16, logicalType="uuid"),
            bytes(16),
            "00000000-0000-0000-0000-000000000000",
        ),
        (named("fixed", "F", size=2), named("fixed", "G", size=2, aliases=["F"]), b"ab", b"ab"),
        (ENUM, FEWER, "a", "a"),
        (ENUM, DEFAULTED, "b", "other"),
        (decimal(9, 2), decimal(9, 2), Decimal("-2.50"), Decimal("-2.50")),
        (decimal(9, 2), decimal(38, 10), Decimal("2.50"), Decimal("2.5000000000")),
        (decimal(64, 3), decimal(9, 2), Decimal("2.500"), Decimal("2.50")),
        (decimal(38), decimal(38), Decimal(10**38 - 1), Decimal(10**38 - 1)),
        ("bytes", decimal(4, 2), b"\x01\x00", Decimal("2.56")),
        (decimal(4, 2), "bytes", Decimal("2.56"), b"\x01\x00"),
        (named("fixed", "F", size=4, logicalType="decimal", precision=4, scale=1),) * 2 + (Decimal("-1.5"),) * 2,
        (
            {"type": "array", "items": ["null", "int"]},
            {"type": "array", "items": ["null", "long"]},
            [1, None],
            [1, None],
        ),
        (
            {"type": "map", "values": MILLIS},
            {"type": "map", "values": MILLIS},
            {"k": 0},
            [("k", datetime(1970, 1, 1, tzinfo=UTC))],
        ),
    ],
)
def test_a_value_is_read_as_it_was_meant(written: Schema, declared: Schema, value: Any, expected: Any) -> None:
    read = one(written, declared, value)
    assert (read.unreadable, read.wrong, read.unknown) == (None, {}, ())
    assert read.values == {"v": expected}
    assert type(read.values["v"]) is type(expected)


@pytest.mark.parametrize(
    ("written", "declared", "value", "reason"),
    [
        ("long", "int", 5, f"type: v is not {INT_WORDS}, got 5 of type long"),
        ("string", "int", "x\n", f'type: v is not {INT_WORDS}, got "x\\n" of type string'),
        ("double", "float", 0.5, "type: v is not a number within float, got 0.5 of type double"),
        ("double", "long", float("nan"), f"type: v is not {LONG_WORDS}, got NaN of type double"),
        ("boolean", "string", True, "type: v is not text in UTF-8, got true of type boolean"),
        ("bytes", "string", b"\xff", "type: v is not text in UTF-8, got 0xff"),
        ("long", "double", 2**53 + 1, f"type: v is not a whole number that double is exact for, got {2**53 + 1}"),
        ("int", "float", 2**24 + 1, f"type: v is not a whole number that float is exact for, got {2**24 + 1}"),
        (["null", "int"], "int", None, "required: v is missing"),
        ("null", "int", None, "required: v is missing"),
        (SEVERAL, ["null", "int"], 2**40, f"type: v is not {INT_WORDS}, got {2**40} of type long"),
        (SEVERAL, ["null", "long"], {"a": 1}, f'type: v is not {LONG_WORDS}, got {{"a":1}} of type X'),
        (MILLIS, MILLIS, 253_402_300_800_000, f"type: v is not {INSTANT_WORDS}, got 253402300800000"),
        (MILLIS, MILLIS, -62_135_596_800_001, f"type: v is not {INSTANT_WORDS}, got -62135596800001"),
        (NANOS, MICROS, 1, f"type: v is not {INSTANT_WORDS} in whole microseconds, got 1 of type timestamp-nanos"),
        (MILLIS, NANOS, 2**60, f"type: v is not {LONG_WORDS}, got {2**60}"),
        (DATE, MILLIS, 5, f"type: v is not {INSTANT_WORDS}, got 5 of type date"),
        (MILLIS, LOCAL_MILLIS, 5, f"type: v is not {INSTANT_WORDS}, got 5 of type timestamp-millis"),
        (TIME_MICROS, TIME_MILLIS, 5, f"type: v is not {INT_WORDS}, got 5 of type time-micros"),
        ("int", DATE, 2_932_897, "type: v is not a date of the years 1 to 9999, got 2932897"),
        ("string", UUID, "abc", f'type: v is not a UUID, such as {A_UUID}, got "abc"'),
        (FIXED, named("fixed", "F", size=3), b"ab", "type: v is not 3 bytes of F, got 0x6162 of type F"),
        (FIXED, named("fixed", "G", size=2), b"ab", "type: v is not 2 bytes of G, got 0x6162 of type F"),
        (ENUM, FEWER, "b", 'type: v is not one of a, got "b"'),
        (ENUM, named("enum", "Other", symbols=["a"]), "a", 'type: v is not one of a, got "a" of type E'),
        (decimal(9, 3), decimal(9, 2), Decimal("1.005"), "type: v is not a number within decimal(9,2), got 1.005"),
        (decimal(9, 2), decimal(4, 2), Decimal("-100.00"), "type: v is not a number within decimal(4,2), got -100.00"),
        (decimal(64), decimal(38), Decimal(10**38), f"type: v is not a number within decimal(38,0), got {10**38}"),
        ("bytes", decimal(4, 2), b"\x7f" * 999, f"type: v is not a number within decimal(4,2), got 0x{'7f' * 24}..."),
        ({"type": "array", "items": "int"}, "int", [1], f"type: v is not {INT_WORDS}, got [1] of type array"),
        (
            {"type": "array", "items": ["null", "int"]},
            {"type": "array", "items": "int"},
            [1, None],
            "required: v[1] is missing",
        ),
        (
            {"type": "map", "values": ENUM},
            {"type": "map", "values": FEWER},
            {"k": "b"},
            'type: v["k"] is not one of a, got "b"',
        ),
        ("int", {"type": "map", "values": "int"}, 1, "type: v is not a map, got 1 of type int"),
        ("int", {"type": "array", "items": "int"}, 1, "type: v is not an array, got 1 of type int"),
        (
            record(("a", "int"), name="X"),
            record(("a", "int"), name="Y"),
            {"a": 1},
            'type: v is not a record Y, got {"a":1} of type X',
        ),
        (record(("a", "int"), name="X"), record(("b", "int"), name="X"), {"a": 1}, "required: v.b is missing"),
    ],
)
def test_what_cannot_be_read_as_it_was_meant_is_refused_with_its_path_and_value(
    written: Schema, declared: Schema, value: Any, reason: str
) -> None:
    read = one(written, declared, value)
    assert (read.unreadable, read.wrong, read.values) == (None, {"v": reason}, {"v": None})


@pytest.mark.parametrize(
    ("type_", "default", "expected"),
    [
        ("int", 3, 3),
        (["null", "int"], None, None),
        (["null", "int"], 3, 3),
        ("double", 3, 3.0),
        ("double", "Infinity", float("inf")),
        ("string", "x", "x"),
        ("boolean", False, False),
        ("bytes", "\u00ff", b"\xff"),
        (FIXED, "\u0001\u0000", b"\x01\x00"),
        (decimal(4, 2), "\u0001\u0000", Decimal("2.56")),
        (MILLIS, 1_767_225_600_000, AN_INSTANT),
        (DATE, 20_454, date(2026, 1, 1)),
        (ENUM, "b", "b"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], [1, None]),
        ({"type": "map", "values": MILLIS}, {"k": 0}, [("k", datetime(1970, 1, 1, tzinfo=UTC))]),
        (record(("a", "int"), {"name": "b", "type": "int", "default": 2}, name="X"), {"a": 1}, {"a": 1, "b": 2}),
    ],
)
def test_a_field_that_was_not_written_has_its_default(type_: Schema, default: Any, expected: Any) -> None:
    written = record(("id", "int"))
    declared = record(("id", "int"), {"name": "v", "type": type_, "default": default})
    (read,) = resolved(written, declared, encoded(written, {"id": 1}))
    assert (read.unreadable, read.wrong, read.values) == (None, {}, {"id": 1, "v": expected})


@pytest.mark.parametrize(
    ("type_", "default"),
    [
        ("int", 2**31),
        ("long", 2**63),
        ("int", "a"),
        ("string", 1),
        ("bytes", "\u0100"),
        (FIXED, "a"),
        (ENUM, "d"),
        (decimal(2), "\u0001\u0000"),
        (MILLIS, 2**62),
        ("double", "many"),
        ({"type": "array", "items": "int"}, ["a"]),
        ({"type": "map", "values": "int"}, {"k": None}),
        (record(("a", "int"), name="X"), {}),
        (record(("a", "int"), name="X"), 1),
    ],
)
def test_a_default_that_is_none_of_its_type_is_refused_when_declared(type_: Schema, default: Any) -> None:
    field = {"name": "v", "type": type_, "default": default}
    with pytest.raises(DeclarationError, match=r"cannot be (used|read) \(.*\); write"):
        Avro(json.dumps(record(field)))
    # As a field of a record within, it may be asked for as well.
    with pytest.raises(DeclarationError, match=r"cannot be (used|read) \(.*\); write"):
        Avro(json.dumps(record(("inner", record(field, name="Inner")))))


def test_fields_and_records_are_found_by_their_aliases() -> None:
    written = record(("old", "int"), ("inner", record(("x", "int"), name="shop.Old")), name="shop.Before")
    declared = record(
        {"name": "new", "type": "int", "aliases": ["older", "old"]},
        ("inner", record({"name": "y", "type": "long", "aliases": ["x"]}, name="New", aliases=["Old"])),
        name="After",
        aliases=["shop.Before"],
    )
    (read,) = resolved(written, declared, encoded(written, {"old": 1, "inner": {"x": 2}}))
    assert (read.unreadable, read.wrong, read.unknown) == (None, {}, ())
    assert read.values == {"new": 1, "inner": {"y": 2}}


@pytest.mark.parametrize(
    ("written", "declared", "values"),
    [
        ("amount", ("net<amount", "amount"), {"net": "amount", "amount": None}),
        ("amount", ("amount", "net<amount"), {"net": "amount", "amount": None}),
        ("net amount", ("net<amount", "amount"), {"net": "net", "amount": "amount"}),
        ("amount", ("net<amount", "gross<amount"), {"net": "amount", "gross": None}),
        ("amount total", ("amount<total", "net<amount"), {"net": "amount", "amount": "total"}),
        ("b c", ("c", "b<c", "a<b"), {"a": "b", "b": "c", "c": None}),
    ],
)
def test_a_written_field_fills_one_declared_field_which_is_that_with_the_alias(
    written: str, declared: tuple[str, ...], values: dict[str, str | None]
) -> None:
    theirs = record(*((name, "string") for name in written.split()))
    named_so = [each.partition("<") for each in declared]
    ours = record(
        *(
            {"name": name, "type": ["null", "string"], "default": None, "aliases": [alias] if alias else []}
            for name, _, alias in named_so
        )
    )
    payload = {name: name for name in written.split()}
    (read,) = resolved(theirs, ours, encoded(theirs, payload))
    assert (read.values, read.wrong, read.unknown) == (values, {}, ())
    outer, inner = record(("v", theirs | {"name": "I"}), name="O"), record(("v", ours | {"name": "I"}), name="O")
    (read,) = resolved(outer, inner, encoded(outer, {"v": payload}))
    assert (read.values, read.wrong, read.unknown) == ({"v": values}, {}, ())


def test_fields_that_nobody_declared_are_told_by_their_paths_at_every_depth() -> None:
    def schema(*more: Any) -> Schema:
        item = record(("sku", "string"), *more, name="Item")
        return record(
            ("address", ["null", record(("zip", "string"), *more, name="Address")]),
            ("items", {"type": "array", "items": item}),
            ("by", {"type": "map", "values": {"type": "array", "items": "Item"}}),
            *more,
        )

    value: dict[str, Any] = {"address": None, "items": [], "by": {}, "new": 1}
    (read,) = resolved(schema(("new", "int")), schema(), encoded(schema(("new", "int")), value))
    assert set(read.unknown) == {"new", "address.new", "items.new", "by.new"}
    assert read.wrong == {}


def test_records_are_read_without_the_fields_that_nobody_declared() -> None:
    written = record(("inner", record(("a", "long"), ("b", "long"), name="Inner")), ("c", "long"))
    declared = record(("inner", record(("a", "long"), name="Inner")))
    (read,) = resolved(written, declared, encoded(written, {"inner": {"a": 1, "b": 2}, "c": 3}))
    assert (read.values, read.unknown) == ({"inner": {"a": 1}}, ("c", "inner.b"))


def test_what_is_wrong_deep_within_costs_its_column_only() -> None:
    item = record(("price", decimal(9, 3)), ("qty", "int"), name="Item")
    declared_item = record(("price", decimal(9, 2)), ("qty", "int"), name="Item")
    written = record(("id", "string"), ("items", {"type": "array", "items": item}))
    declared = record(("id", "string"), ("items", {"type": "array", "items": declared_item}))
    good = {"price": Decimal("1.230"), "qty": 1}
    first, second = resolved(
        written,
        declared,
        encoded(written, {"id": "a", "items": [good, {"price": Decimal("19.999"), "qty": 2}]}),
        encoded(written, {"id": "b", "items": [good]}),
    )
    assert first.values == {"id": "a", "items": None}
    assert first.wrong == {"items": "type: items[1].price is not a number within decimal(9,2), got 19.999"}
    assert second.values == {"id": "b", "items": [{"price": Decimal("1.23"), "qty": 1}]}


def test_a_key_that_stands_twice_in_a_map_is_refused_with_its_path() -> None:
    counts = {"type": "map", "values": "int"}
    once, twice = "04" + "026102" + "026204" + "00", "04" + "026102" + "026104" + "00"
    of = record(("v", counts), ("w", {"type": "array", "items": ["null", counts]}), ("n", "int"))
    payload = bytes.fromhex(once + "04" + "02" + once + "02" + twice + "00" + "0a")
    (read,) = decode(decoder_of(of, None), payload)
    assert read.wrong == {"w": 'type: w[1]["a"] is there more than once'}
    assert read.values == {"v": [("a", 1), ("b", 2)], "w": None, "n": 5}
    # So it is in two blocks, and with one value twice.
    blocks = bytes.fromhex("02" + "026102" + "0106" + "026102" + "00")
    (read,) = decode(decoder_of(record(("v", counts)), None), blocks)
    assert read.wrong == {"v": 'type: v["a"] is there more than once'}
    (read,) = decode(decoder_of(record(("v", counts)), None), bytes.fromhex("0202ff0200"))
    assert (read.unreadable, read.wrong) == (None, {"v": 'type: v["\\udcff"] is not text in UTF-8, got 0xff'})


def test_a_map_where_something_else_is_declared_is_shown_as_it_was_written() -> None:
    assert one({"type": "map", "values": "int"}, "string", {"a": 1}).wrong == {
        "v": 'type: v is not text in UTF-8, got {"a":1} of type map'
    }


def test_bytes_that_are_no_text_or_no_int_cost_their_column_only() -> None:
    schema = record(("s", "string"), ("n", "int"), ("m", {"type": "map", "values": "int"}))
    bytes_ = record(
        ("s", "bytes"), ("n", "long"), ("m", {"type": "array", "items": record(("k", "bytes"), ("v", "int"))})
    )
    bytes_["fields"][2]["type"]["items"]["name"] = "Entry"
    (read,) = resolved(
        schema, schema, encoded(bytes_, {"s": b"a\xff", "n": 2**40, "m": [{"k": b"\xfe", "v": 1}]})
    )  # fmt: skip
    assert read.wrong == {
        "s": "type: s is not text in UTF-8, got 0x61ff",
        "n": f"type: n is not {INT_WORDS}, got {2**40}",
        "m": 'type: m["\\udcfe"] is not text in UTF-8, got 0xfe',
    }


def test_bytes_that_are_no_boolean_no_symbol_and_no_type_of_a_union_are_never_read_as_another_one() -> None:
    schema = record(("b", "boolean"), ("e", named("enum", "E", symbols=["x", "y"])), ("u", ["null", "int"]))
    true, x, null = b"\1", b"\0", b"\0"
    damaged = [b"\2" + x + null, true + b"\1" + null, true + b"\4" + null, true + x + b"\1\2", true + x + b"\x7f\2"]
    reads = resolved(schema, schema, true + b"\2" + null, *damaged)
    assert reads[0].values == {"b": True, "e": "y", "u": None}
    assert [read.wrong for read in reads[1:4]] == [
        {"b": "type: b is not true or false, got 0x02"},
        {"e": "type: e is not one of x, y, got -1"},
        {"e": "type: e is not one of x, y, got 2"},
    ]
    no_type = "avro: the payload is no record of its schema (a union has no such type)"
    assert [read.unreadable for read in reads[4:]] == [no_type, no_type]


@pytest.mark.parametrize(
    ("type_", "payload"),
    [
        ("long", "80808080808080808002"),
        ("long", "82808080808080808002"),
        ("long", "8280808080808080808001"),
        ("long", "ff" * 9 + "7f"),
        ("int", "80808080808080808002"),
        ("string", "82808080808080808002" + "61"),
        ("bytes", "8280808080808080808000" + "61"),
        (named("enum", "E", symbols=["a", "b"]), "82808080808080808002"),
        (["null", "int"], "82808080808080808002" + "02"),
        ({"type": "array", "items": "int"}, "82808080808080808002" + "0200"),
        ({"type": "array", "items": "int"}, "01" + "82808080808080808002" + "0200"),
        ({"type": "map", "values": "int"}, "82808080808080808002" + "02610200"),
    ],
)
def test_a_number_of_more_than_64_bits_is_never_cut_to_another_one(type_: Schema, payload: str) -> None:
    (read,) = decode(decoder_of(record(("v", type_)), None), bytes.fromhex(payload))
    assert read.values == {"v": None}
    assert read.unreadable == "avro: the payload is no record of its schema (a number has more than 64 bits)"


@given(
    st.sampled_from([2**63 - 1, -(2**63), 2**62, -(2**62)]),
    st.binary(min_size=9, max_size=12) | st.just(b"\xff" * 10),
    st.sampled_from([float.fromhex("-0x1.fffffffffffffp+1023"), -1.5]),
    st.text(max_size=12),
)
def test_the_greatest_numbers_and_bytes_that_look_like_them_are_read_as_they_are(
    number: int, content: bytes, fraction: float, text: str
) -> None:
    schema = record(("n", "long"), ("b", "bytes"), ("d", "double"), ("t", ["null", "string"]), ("l", MANY))
    value = {"n": number, "b": b"\xff" * 9 + content, "d": fraction, "t": text, "l": [number, number]}
    (read,) = decode(decoder_of(schema, None), encoded(schema, value))
    assert (read.unreadable, read.wrong, read.values) == (None, {}, value)


def test_schemas_that_cannot_be_used_reject_their_rows_with_the_reason() -> None:
    declared = record(("v", ["null", "int"]))
    for written, reason in {
        '"int"': "schema 1 of the registry is not that of a record",
        "{": "schema 1 of the registry cannot be read (",
        json.dumps(record(("v", "int"), name="Other")): "the payload is a record Other, and no R",
        json.dumps(record(("x", {"type": "array", "items": "null"}))): "schema 1 of the registry cannot be read (arr",
        json.dumps(
            record(("x", {"type": "array", "items": record(name="No")}))
        ): "schema 1 of the registry cannot be read (arr",
    }.items():
        with registry({1: written}) as url:
            (read,) = decode(decoder_of(declared, url), HEAD + b"\0")
        assert (read.unreadable or "").startswith(f"avro: {reason}"), written


def test_records_within_themselves_without_end_cannot_end_the_process() -> None:
    written = record(("v", "int"), ("next", ["null", "R"]))
    payloads = (encoded(written, {"v": 1, "next": {"v": 2, "next": None}}), b"\2\2" * 1_000_000 + b"\2\0")
    good, endless = resolved(written, record(("v", "int")), *payloads)
    assert (good.values, good.unknown) == ({"v": 1}, ("next",))
    assert (endless.unreadable or "").startswith("avro: the payload is no record of its schema (")


def test_a_writers_defaults_and_damaged_logical_types_are_no_matter() -> None:
    damaged = [decimal(4, 5), logical("bytes", "decimal"), logical("string", "date"), {"type": {"type": "int"}}]
    fields = [{"name": f"f{place}", "type": type_, "default": []} for place, type_ in enumerate(damaged)]
    plain = ["bytes", "bytes", "string", "int"]
    pairs = [(f"f{place}", type_) for place, type_ in enumerate(plain)]
    value = {"f0": b"a", "f1": b"b", "f2": "c", "f3": 4}
    (read,) = resolved(record(*fields), record(*pairs), encoded(record(*pairs), value))
    assert (read.unreadable, read.wrong, read.values) == (None, {}, value)


def test_schemas_that_refer_to_others_are_read_with_them() -> None:
    address = record(("zip", "string"), name="shop.Address")
    order = record(("id", "int"), ("to", "shop.Address"))
    declared = record(("id", "int"), ("to", address))
    reference = {"name": "shop.Address", "subject": "address", "version": 3}
    payload = encoded(declared, {"id": 1, "to": {"zip": "x"}})
    with registry(
        {1: json.dumps(order)}, references={1: [reference]}, subjects={("address", 3): json.dumps(address)}
    ) as url:
        (read,) = decode(decoder_of(declared, url), HEAD + payload)
    assert (read.unreadable, read.values) == (None, {"id": 1, "to": {"zip": "x"}})
    with registry({1: json.dumps(order)}, references={1: [reference]}) as url:
        (read,) = decode(decoder_of(declared, url), HEAD + payload)
    assert read.unreadable == "avro: the registry has no version 3 of 'address'"


class _Rejected(Exception):
    """By the rules the value cannot be read, and its path is this."""


# What each pair of a written and a declared type makes of values: plain Python beside fastavro's own reader.
PAIRS: dict[str, tuple[Schema, Schema, st.SearchStrategy[Any]]] = {
    "same int": ("int", "int", st.integers(-(2**31), 2**31 - 1)),
    "int to long": ("int", "long", st.integers(-(2**31), 2**31 - 1)),
    "int to double": ("int", "double", st.integers(-(2**31), 2**31 - 1)),
    "long to float": ("long", "float", st.integers(-(2**24), 2**24) | st.integers(-(2**63), 2**63 - 1)),
    "long to double": ("long", "double", st.integers(-(2**53), 2**53) | st.integers(-(2**63), 2**63 - 1)),
    "float to double": ("float", "double", st.floats(allow_nan=False, width=32)),
    "text to bytes": ("string", "bytes", st.text(st.characters(exclude_categories=["Cs"]))),
    "bytes to text": ("bytes", "string", st.binary(max_size=4)),
    "long to int": ("long", "int", st.integers(-(2**63), 2**63 - 1)),
    "text to long": ("string", "long", st.text(st.characters(exclude_categories=["Cs"]), max_size=3)),
    "long to instant": ("long", MILLIS, st.integers(-(2**48), 2**48)),
    "decimals": (decimal(12, 3), decimal(9, 2), st.decimals(-(10**7), 10**7, places=3)),
    "same decimals": (decimal(38, 6), decimal(38, 6), st.decimals(-(10**20), 10**20, places=6)),
    "booleans": ("boolean", "boolean", st.booleans()),
}


def python_value(kind: str, value: Any) -> Any:
    """What a value must come out as; raises where it must be refused."""
    _, declared, _ = PAIRS[kind]
    if kind in ("long to int", "text to long"):
        raise _Rejected
    if kind == "long to float":
        if int(np.float32(value)) != value:
            raise _Rejected
        return float(value)
    if declared == "double" and type(value) is int:
        if int(float(value)) != value:
            raise _Rejected
        return float(value)
    if kind == "text to bytes":
        return value.encode()
    if kind == "bytes to text":
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise _Rejected from None
    if kind == "long to instant":
        try:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=value)
        except OverflowError:
            raise _Rejected from None
    if kind == "decimals":
        if value != round(value, 2) or abs(value) >= 10**7:
            raise _Rejected
        return round(value, 2)
    return value


@st.composite
def pairs(draw: st.DrawFn, depth: int = 3) -> tuple[Schema, Schema, st.SearchStrategy[Any], Any]:
    """A written type, a declared one, values of the written one, and what must be made of them with their path."""
    shapes = ["leaf", "leaf", "nullable"] + (["array", "map", "record"] if depth else [])
    shape = draw(st.sampled_from(shapes))
    if shape == "leaf":
        kind = draw(st.sampled_from(sorted(PAIRS)))
        theirs, ours, values = PAIRS[kind]

        def leaf(value: Any, path: str) -> Any:
            try:
                return python_value(kind, value)
            except _Rejected:
                raise _Rejected(path) from None

        return theirs, ours, values, leaf
    if shape == "record":
        return draw(records(depth - 1))
    theirs, ours, values, expected = draw(pairs(0 if shape == "nullable" else depth - 1))
    if shape == "nullable":
        if isinstance(theirs, list):
            return theirs, ours, values, expected
        required = draw(st.booleans())

        def nullable(value: Any, path: str) -> Any:
            if value is None and required:
                raise _Rejected(path)
            return None if value is None else expected(value, path)

        return ["null", theirs], ours if required else [ours, "null"], st.none() | values, nullable
    if shape == "array":

        def array(value: Any, path: str) -> Any:
            return [expected(each, f"{path}[{place}]") for place, each in enumerate(value)]

        return {"type": "array", "items": theirs}, {"type": "array", "items": ours}, st.lists(values, max_size=3), array

    def mapped(value: Any, path: str) -> Any:
        return [(key, expected(each, f'{path}["{key}"]')) for key, each in value.items()]

    keys = st.sampled_from(["a", "b", "ü"])
    theirs, ours = {"type": "map", "values": theirs}, {"type": "map", "values": ours}
    return theirs, ours, st.dictionaries(keys, values, max_size=2), mapped


_NUMBERS = count()


@st.composite
def records(draw: st.DrawFn, depth: int = 3) -> tuple[Schema, Schema, st.SearchStrategy[Any], Any]:
    """Records whose declared side has other fields in another order, an alias and a default."""
    name = f"N{next(_NUMBERS)}"
    members = {f"f{place}": draw(pairs(depth)) for place in range(draw(st.integers(1, 3)))}
    theirs = [{"name": field, "type": each[0]} for field, each in members.items()]
    ours = [{"name": field, "type": each[1]} for field, each in members.items()]
    more = draw(st.sets(st.sampled_from(["new", "alias", "default"])))
    values = {field: each[2] for field, each in members.items()}
    if "new" in more:
        theirs.insert(0, {"name": "new", "type": "string"})
        values["new"] = st.just("x")
    renamed = {"f0": "g0"} if "alias" in more else {}
    for field in ours:
        if field["name"] in renamed:
            field |= {"name": renamed[field["name"]], "aliases": [field["name"]]}
    if "default" in more:
        ours.append({"name": "d", "type": MILLIS, "default": 0})
    ours = draw(st.permutations(ours))

    def column(value: Any, name: str, path: str) -> Any:
        if name == "d":
            return datetime(1970, 1, 1, tzinfo=UTC)
        old = next((old for old, new in renamed.items() if new == name), name)
        return members[old][3](value[old], path)

    def expected(value: Any, path: str, only: str | None = None) -> Any:
        if only is not None:
            return column(value, only, only)
        return {field["name"]: column(value, field["name"], f"{path}.{field['name']}") for field in ours}

    return record(*theirs, name=name), record(*ours, name=name), st.fixed_dictionaries(values), expected


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_record_is_read_by_any_schema_as_plain_python_has_it_or_refused_with_its_path(data: st.DataObject) -> None:
    theirs, ours, values, expected = data.draw(records(2))
    value = data.draw(values)
    (read,) = resolved(theirs, ours, encoded(theirs, value))
    assert read.unreadable is None
    for field in ours["fields"]:
        name = field["name"]
        try:
            column = expected(value, "", name)
        except _Rejected as error:
            reason = read.wrong[name]
            kind, _, said = reason.partition(": ")
            assert kind in ("type", "required") and said.startswith(f"{error} "), (reason, str(error))
            assert kind == "required" or ", got " in reason
            assert read.values[name] is None
        else:
            assert name not in read.wrong
            assert read.values[name] == column

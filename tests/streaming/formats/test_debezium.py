"""Debezium's envelopes, in JSON and in Avro: changes of rows, and what is none."""

from __future__ import annotations

import json
from datetime import UTC
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Lake, Pipeline, Stream, latest
from streaming.base.errors import DeclarationError
from streaming.formats.avro import Avro
from streaming.formats.debezium import Debezium
from streaming.formats.json import Json
from streaming.log import read_log, valid
from streaming.operators.runtime import runtime_of
from tests.streaming.formats.contract import Samples, check_format
from tests.streaming.formats.test_avro import written
from tests.support.instants import T0, at, ms
from tests.support.registry import registry
from tests.support.runs import run, tuples

ROW = Json("id bigint not null, name string not null, price decimal(20, 10)")
FORM = Debezium(ROW)


def envelope(op: str, before: Any = None, after: Any = None, *, seconds: float = 0, lsn: int = 7) -> dict[str, Any]:
    """A change that was committed `seconds` after T0 and read a second later."""
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": ms(at(seconds))}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": ms(at(seconds + 1))}


def payload(*args: Any, **kwargs: Any) -> bytes:
    return json.dumps(envelope(*args, **kwargs)).encode()


A, B = {"id": 1, "name": "a", "price": None}, {"id": 1, "name": "b", "price": None}


def test_debezium_in_json_keeps_the_contract(spark: SparkSession) -> None:
    exact = b'{"op": "c", "before": null, "after": {"id": 9007199254740993, "name": "x", "price": 0.1234567891}}'
    with_schema = json.dumps({"schema": {"type": "struct"}, "payload": envelope("u", A, B)}).encode()
    good: dict[bytes, dict[str, Any]] = {
        payload("c", None, A): {"id": 1, "name": "a", "change_op": "c"},
        payload("r", None, B): {"id": 1, "name": "b", "change_op": "r"},
        payload("u", A, B): {"id": 1, "name": "b", "change_op": "u"},
        # Many databases tell no more than the key of what they delete.
        payload("d", {"id": 1}): {"id": 1, "name": None, "change_op": "d"},
        with_schema: {"name": "b", "change_op": "u"},
        exact: {"id": 9007199254740993, "change_at": None, "change_source": None},
    }
    wrong = {
        payload("c", None, {"id": "1", "name": "a"}): frozenset({"id"}),
        payload("u", A, {"id": 1}): frozenset({"name"}),
        payload("d", {"id": "1"}): frozenset({"id"}),
        json.dumps({"op": "c", "after": A, "ts_ms": "soon"}).encode(): frozenset({"change_at"}),
        json.dumps({"op": "c", "after": A, "ts_ms": 2**62}).encode(): frozenset({"change_at"}),
    }
    unknown = {payload("c", None, {**A, "colour": "red"}): frozenset({"colour"})}
    unreadable = (
        *(b"", b"not json", b"[1]", b'{"id": 1, "name": "a"}', b'{"op": "c"}', b"\xff", payload("c", None, "a")),
        *(payload("c", None, A)[:-1], payload("c", None, A) + b" {}", payload("u", A), payload("d", None, A)),
        *(payload("t"), payload("m"), payload("x", A, A)),
    )
    check_format(spark, FORM, Samples(good, wrong, unknown, unreadable))


def test_a_change_tells_when_it_was_committed_and_where_the_database_has_it(spark: SparkSession) -> None:
    without_source = json.dumps({"op": "c", "after": A, "ts_ms": ms(T0)}).encode()
    raw = spark.createDataFrame([(payload("c", None, A, seconds=3, lsn=2**53 + 1),), (without_source,)], "_raw binary")
    first, second = FORM.parse(raw).collect()
    assert first["change_at"].astimezone(UTC) == at(3)
    assert json.loads(first["change_source"])["lsn"] == 2**53 + 1
    assert (second["change_at"].astimezone(UTC), second["change_source"]) == (T0, None)


def test_a_tombstone_is_of_the_time_of_its_record_and_no_defect(spark: SparkSession) -> None:
    origin = "struct<topic: string, timestamp: timestamp>"
    rows = [(None, {"timestamp": at(3)}), (payload("c", None, A, seconds=1), {"timestamp": at(9)})]
    for declared, place in ((origin, lambda own: own), (f"struct<live: {origin}>", lambda own: {"live": own})):
        raw = spark.createDataFrame(
            [(content, place(own)) for content, own in rows], f"_raw binary, _origin {declared}"
        )
        tombstone, change = FORM.parse(raw).collect()
        assert [row["change_at"].astimezone(UTC) for row in (tombstone, change)] == [at(3), at(1)]
        assert (tombstone["change_op"], tombstone["id"], tombstone["_unreadable"]) == (None, None, None)
        assert tombstone["_wrong"] is None or not any(tombstone["_wrong"])


ENVELOPE = json.dumps(
    {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.customers",
        "fields": [
            {
                "name": "before",
                "default": None,
                "type": [
                    "null",
                    {
                        "type": "record",
                        "name": "Value",
                        "fields": [
                            {"name": "id", "type": "long"},
                            {"name": "name", "type": ["null", "string"], "default": None},
                        ],
                    },
                ],
            },
            {"name": "after", "type": ["null", "Value"], "default": None},
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "fields": [
                        {"name": "ts_ms", "type": "long"},
                        {"name": "lsn", "type": ["null", "long"], "default": None},
                    ],
                },
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }
)


def changed(op: str, before: Any = None, after: Any = None, schema: str = ENVELOPE, identity: int = 1) -> bytes:
    source = {"ts_ms": ms(at(5)) if op != "r" else 0, "lsn": 8}
    return written(schema, identity, before=before, after=after, source=source, op=op, ts_ms=ms(at(6)))


def with_fields(*fields: dict[str, Any]) -> str:
    """The envelope of a row with other fields."""
    envelope = json.loads(ENVELOPE)
    envelope["fields"][0]["type"][1]["fields"] = [*fields]
    return json.dumps(envelope)


def test_debezium_in_avro_keeps_the_contract(spark: SparkSession) -> None:
    first, second = {"id": 1, "name": "a"}, {"id": 1, "name": "b"}
    with registry({1: ENVELOPE}) as url:
        good: dict[bytes, dict[str, Any]] = {
            changed("c", None, first): {"id": 1, "name": "a", "change_op": "c", "change_source": _SOURCE},
            changed("u", first, second): {"name": "b", "change_op": "u", "change_unavailable": None},
            changed("r", None, first): {"change_op": "r", "change_at": at(6).replace(tzinfo=None)},
            changed("d", second, None): {"id": 1, "name": "b", "change_op": "d"},
        }
        not_sent = {"id": 1, "name": "__debezium_unavailable_value"}
        good[changed("u", None, not_sent)] = {"id": 1, "name": None, "change_unavailable": ["name"]}
        unreadable = (changed("t"), changed("c", first), changed("d", None, first), b"", b"\0\0\0\0\2x")
        check_format(spark, Debezium(Avro(ENVELOPE, registry=url)), Samples(good, {}, {}, unreadable))


def test_values_of_any_type_that_were_not_sent_in_avro_are_null_and_named(spark: SparkSession) -> None:
    placeholder = "__debezium_unavailable_value"
    types: dict[str, tuple[Any, Any, Any]] = {
        "a_text": ("string", placeholder, "x"),
        "bytes_": ("bytes", placeholder.encode(), b"x"),
        "texts": ({"type": "array", "items": "string"}, [placeholder], ["x"]),
        "ints": ({"type": "array", "items": "int"}, [*placeholder.encode()], [95, 95]),
        "longs": ({"type": "array", "items": "long"}, [*placeholder.encode()], []),
        "a_map": ({"type": "map", "values": "string"}, {placeholder: placeholder}, {placeholder: "x"}),
    }
    schema = with_fields(
        {"name": "id", "type": "long"}, *({"name": name, "type": type_} for name, (type_, _, _) in types.items())
    )
    not_sent = {"id": 1, **{name: written for name, (_, written, _) in types.items()}}
    sent = {"id": 1, **{name: value for name, (_, _, value) in types.items()}}
    with registry({1: schema}) as url:
        payloads = [changed("u", None, row, schema, 1) for row in (not_sent, sent)]
        raw = spark.createDataFrame([(payload,) for payload in payloads], "_raw binary")
        form = Debezium(Avro(schema, registry=url))
        rows = [row.asDict() for row in form.parse(raw).collect()]
    assert (rows[0]["change_unavailable"], {rows[0][name] for name in types}) == ([*types], {None})
    assert rows[1]["change_unavailable"] is None
    assert {name: rows[1][name] for name in types} == {**{n: v for n, (_, _, v) in types.items()}, "bytes_": b"x"}


def test_rows_in_avro_are_judged_field_by_field_and_their_unknown_fields_named(spark: SparkSession) -> None:
    address = {"type": "record", "name": "Address", "fields": [{"name": "zip", "type": "string"}]}
    more = {**address, "fields": [*address["fields"], {"name": "city", "type": "string"}]}
    id_, price = {"name": "id", "type": "long"}, {"type": "bytes", "logicalType": "decimal", "precision": 12}
    declared = with_fields(
        id_,
        {"name": "price", "type": {**price, "scale": 2}},
        {"name": "to", "type": ["null", address], "default": None},
    )
    newer = with_fields(
        {"name": "price", "type": {**price, "scale": 3}},
        id_,
        {"name": "to", "type": more},
        {"name": "colour", "type": "int"},
    )
    without = with_fields(id_)
    to = {"zip": "1", "city": "x"}

    def row(price: str) -> dict[str, Any]:
        return {"id": 1, "price": Decimal(price), "to": to, "colour": 3}

    with registry({1: declared, 2: newer, 3: without}) as url:
        good = {changed("d", {"id": 1}, None, without, 3): {"id": 1, "price": None, "to": None, "change_op": "d"}}
        unknown = {
            changed("u", row("1.005"), row("2.500"), newer, 2): frozenset({"colour", "to.city"}),
            changed("d", row("1.500"), None, newer, 2): frozenset({"colour", "to.city"}),
        }
        wrong = {
            changed("u", row("1.500"), row("1.005"), newer, 2): frozenset({"price"}),
            changed("d", row("1.005"), None, newer, 2): frozenset({"price"}),
            changed("c", None, {"id": 1}, without, 3): frozenset({"price"}),
        }
        form = Debezium(Avro(declared, registry=url))
        check_format(spark, form, Samples(good, wrong, unknown, ()))
        raw = spark.createDataFrame([(payload,) for payload in [*unknown, *wrong]], "_raw binary")
        rows = form.parse(raw).collect()
    assert [row["price"] for row in rows] == [Decimal("2.50"), Decimal("1.50"), None, None, None]
    assert [row["to"] and row["to"].asDict() for row in rows] == [{"zip": "1"}] * 4 + [None]
    assert [row["_wrong"]["price"] for row in rows[2:]] == [
        *["type: price is not a number within decimal(12,2), got 1.005"] * 2,
        "required: price is missing",
    ]


_SOURCE = json.dumps({"ts_ms": ms(at(5)), "lsn": 8}, separators=(",", ":"))


def test_the_newest_row_of_each_key_and_its_deletion_follow_from_the_changes(spark: SparkSession, lake: Lake) -> None:
    stream = Stream(
        name="customers",
        source=Files("landing/customers"),
        format=Debezium(Json("id bigint not null, name string")),
        event_time="change_at",
        clock=BoundedOutOfOrderness("0 seconds"),
    )
    pipeline = Pipeline(stream, (newest := latest("newest", stream, by=("id",)),))
    two = {"id": 2, "name": "x"}
    changes = [
        payload("r", None, A, seconds=1),
        payload("c", None, two, seconds=2),
        payload("u", A, B, seconds=3),
        payload("d", {"id": 2}, seconds=4),
        payload("t", seconds=5),
    ]
    run(spark, lake, pipeline, changes, end_of_input=True)

    assert valid(read_log(spark, lake, stream)).count() == 4
    state = runtime_of(newest, lake).readable["state"](spark)
    rows = tuples(state.selectExpr("id", "newest.name", "newest.change_op"))
    assert rows == [(1, "b", "u"), (2, None, "d")]


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (lambda: "json", "`of` of Debezium is 'json'"),
        (lambda: Json("id int, change_op string"), "column 'change_op' of the row is one that Debezium adds"),
        (
            lambda: Avro(json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]})),
            "has no field after, before, op; give the schema of the whole envelope",
        ),
    ],
)
def test_what_has_no_row_of_a_table_is_refused(of: Any, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Debezium(of())

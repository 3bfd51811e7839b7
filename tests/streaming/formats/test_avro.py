"""Avro, plain and with a schema registry that really answers."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from streaming.base.errors import DeclarationError
from streaming.formats.avro import Avro
from tests.streaming.formats.contract import Samples, check_format
from tests.support.registry import registry


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": name, **_typed(type_)} for name, type_ in fields]}
    )


def _typed(type_: Any) -> dict[str, Any]:
    return {"type": type_, "default": None} if isinstance(type_, list) else {"type": type_}


def written(schema: str, identity: int | None = None, **values: Any) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(schema)), values)
    return (b"" if identity is None else b"\0" + identity.to_bytes(4)) + stream.getvalue()


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]}
FIRST = record(("id", "string"), ("v", "int"))
SECOND = record(("id", "string"), ("v", "long"), ("unit", ["null", "string"]))
WITH_NEW = record(("id", "string"), ("v", "int"), ("new", "string"))
OTHER = record(("name", "string"))


def test_plain_avro_keeps_the_contract(spark: SparkSession) -> None:
    schema = record(
        ("id", "string"),
        ("v", ["null", "long"]),
        ("at", MILLIS),
        ("day", {"type": "int", "logicalType": "date"}),
        ("amount", DECIMAL),
        ("tags", {"type": "array", "items": "string"}),
        ("counts", {"type": "map", "values": "int"}),
        ("inner", ["null", INNER]),
    )
    values: dict[str, Any] = {
        "id": "ü",
        "v": None,
        "at": datetime(2026, 1, 1, tzinfo=UTC),
        "day": date(2026, 1, 1),
        "amount": Decimal("-2.50"),
        "tags": ["a", "b"],
        "counts": {"a": 1},
        "inner": {"x": 1.5},
    }
    whole = written(schema, **values)
    read = {name: value for name, value in values.items() if name not in ("at", "inner")}
    check_format(
        spark, Avro(schema), Samples({whole: read}, {}, {}, (b"", b"\x02", whole[:-1], whole + b"\0", b"\xff" * 40))
    )


def test_avro_with_a_registry_keeps_the_contract_and_reads_what_other_schemas_wrote(spark: SparkSession) -> None:
    with registry({1: FIRST, 2: SECOND, 3: OTHER, 4: WITH_NEW}) as url:
        good = {
            written(FIRST, 1, id="a", v=1): {"id": "a", "v": 1, "unit": None},
            written(SECOND, 2, id="b", v=2**40, unit="kg"): {"id": "b", "v": 2**40, "unit": "kg"},
        }
        unknown = {
            written(record(("id", "string"), ("v", "int"), ("new", "string")), 4, id="c", v=3, new="x"): frozenset(
                {"new"}
            )
        }
        unreadable = (
            written(FIRST, id="plain", v=1),
            written(FIRST, 9, id="nobody knows it", v=1),
            written(FIRST, 1, id="d", v=4) + b"more",
            b"\0\0\0\0\1",
            b"\0\0",
            b"",
        )
        wrong = {written(OTHER, 3, name="another record"): frozenset({"id", "v"})}
        check_format(spark, Avro(SECOND, registry=url), Samples(good, wrong, unknown, unreadable))

        raw = spark.createDataFrame([(payload,) for payload in unreadable[:3]], "_raw binary")
        reasons = [row["_unreadable"] for row in Avro(SECOND, registry=url).parse(raw).collect()]
    assert reasons[0] == "avro: the payload does not begin with the id of a schema"
    assert reasons[1] == "avro: the registry has no schema 9"
    assert reasons[2] == "avro: 4 bytes follow the record"


def test_a_schema_that_was_deleted_rejects_its_rows_and_no_others_until_it_is_back(spark: SparkSession) -> None:
    schemas = {1: FIRST, 2: SECOND}
    payloads = [(written(FIRST, 1, id="a", v=1),), (written(SECOND, 2, id="b", v=2, unit="kg"),)]

    def read(url: str) -> list[tuple[str | None, str | None]]:
        rows = Avro(SECOND, registry=url).parse(spark.createDataFrame(payloads, "_raw binary")).collect()
        return [(row["id"], row["_unreadable"]) for row in rows]

    with registry(schemas) as url:
        assert read(url) == [("a", None), ("b", None)]
        deleted = schemas.pop(1)
        assert read(url) == [(None, "avro: the registry has no schema 1"), ("b", None)]
        schemas[1] = deleted
        assert read(url) == [("a", None), ("b", None)]


def test_a_registry_that_is_away_rejects_no_row(spark: SparkSession) -> None:
    with registry({}) as url:
        gone = url
    raw = spark.createDataFrame([(written(FIRST, 1, id="a", v=1),)], "_raw binary")
    with pytest.raises(Exception, match="Connection refused"):
        Avro(FIRST, registry=gone).parse(raw).collect()


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("{", "cannot be read .* write the schema of a record"),
        ('"string"', "is not that of a record; write one with fields"),
        (record(("v", ["null", "int", "string"])), "column 'v' of the Avro schema has a union of several types"),
        (record(("v", "null")), "column 'v' of the Avro schema has the type 'null'"),
        (record(("_v", "int")), "column '_v' is not allowed"),
        (record(("v", "int"), ("V", "int")), "record 'R' of the Avro schema has the field 'v' twice"),
        (record(), "record 'R' of the Avro schema has no field"),
        (record(("v", {"type": "record", "name": "N", "fields": []})), "column 'v' .* the record 'N' without a field"),
        (record(("v", ["null", "R"])), "column 'v' .* the record 'R' inside itself"),
        (
            record(("v", {"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2})),
            "column 'v' of the Avro schema is a decimal of precision 64 and scale 2, which no column can have",
        ),
        (record(("v", {"type": "bytes", "logicalType": "decimal"})), "a decimal of precision None and scale 0"),
        (
            record(("v", {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"})),
            "column 'v' of the Avro schema has the logical type 'duration'",
        ),
    ],
)
def test_a_schema_that_no_columns_can_have_is_refused(schema: str, text: str) -> None:
    with pytest.raises(DeclarationError, match=text):
        Avro(schema)


def test_a_registry_is_a_url() -> None:
    with pytest.raises(DeclarationError, match="registry='localhost:8081' of Avro is no URL; write one"):
        Avro(FIRST, registry="localhost:8081")

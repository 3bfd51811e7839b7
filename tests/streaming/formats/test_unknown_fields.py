"""A field that nobody declared is named, whatever the rest of the payload looks like."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from streaming.formats.json import Json

NAMED: dict[str, list[str] | None] = {
    '{"id":"a"}': None,
    '{"id":"a","n":1,"note":"x","xs":["a","b"]}': None,
    '{"id": "a", "n": null, "note": null}': None,
    '{"id":"a","n":null,"note":"5"}': None,
    '{"\\u0069d":"a"}': None,
    '{"id":"a","id":"b"}': None,
    '{"id":"O\'Hare","note":"say \\"n\\":null"}': None,
    '{"id":"a","new":1}': ["new"],
    '{"new":1}': ["new"],
    '{"id":"a","ID":1,"other":{"id":1}}': ["ID", "other"],
    '{"id":"a","new":1,"new":2}': None,  # nobody can tell which is meant
    '{"id":"n","new":1}': ["new"],
    '{"id":"a","new":null}': ["new"],
    '{"id":"a","":1}': [""],
    '{"id":"a",\'new\':1}': None,
    '{"id":"a","note":"\\"n\\":null","n":null,"new":"}"}': ["new"],
    '{"id":5,"new":1}': ["new"],
    '{"id":"a","new":1} and more': None,
    '{"id":"a","new":': None,
    "[]": None,
    "": None,
}


def test_every_field_that_nobody_declared_is_named_once(spark: SparkSession) -> None:
    format = Json("id string not null, n bigint, note string, xs array<string>")
    raw = spark.createDataFrame([(payload,) for payload in NAMED], "_raw string")
    assert {row["_raw"]: row["_unknown"] for row in format.parse(raw).collect()} == NAMED


def test_a_declared_name_may_need_escapes(spark: SparkSession) -> None:
    names = ('say "hi"', "back\\slash", "é", "a b")
    format = Json(", ".join(f"`{name}` string" for name in names))
    payloads = [json.dumps({name: value}) for name in names for value in ("x", None)]
    payloads += [json.dumps({name: "x"}, ensure_ascii=False) for name in names]
    raw = spark.createDataFrame([(payload,) for payload in payloads], "_raw string")
    assert format.parse(raw).where("_unknown is not null or _unreadable is not null").collect() == []


NESTED: dict[str, list[str] | None] = {
    '{"id":"a"}': None,
    '{"id":"a","address":{"zip":"1","Geo":{"lat":1.5}},"items":[{"sku":"x"},{"sku":"y"}],"by":{"k":{"n":1}}}': None,
    '{"id":"a","address":{},"items":[],"by":{}}': None,
    '{"id":"a","address":null,"items":[null],"by":{"k":null}}': None,
    '{"id":"a","address":{"zip":"1","zip2":"2"}}': ["address.zip2"],
    '{"id":"a","address":{"ZIP":"1"}}': ["address.ZIP"],
    '{"id":"a","address":{"Geo":{"lat":1.5,"lon":null}},"new":1}': ["address.Geo.lon", "new"],
    '{"id":"a","items":[{"sku":"x"},{"sku":"y","price":1},{"price":2,"tags":[{"a":1}]}]}': [
        "items.price",
        "items.tags",
    ],
    '{"id":"a","by":{"k":{"n":1},"l":{"m":{"n":2}}}}': ["by.m"],
    '{"id":"a","free":{"any":{"thing":1}}}': None,
    '{"id":"a","address":"{\\"zip2\\":1}"}': None,  # a text, which is wrong, and no object
    '{"id":"a","address":{"zip":"1","zip2":"2"},"items":5}': ["address.zip2"],
    '{"id":"a","address":{"Street. Nr":"5"}}': None,
    '{"id":"a","address":{"StreetX Nr":"5","x: STRING, zip":"1"}}': ["address.StreetX Nr", "address.x: STRING, zip"],
}


def test_fields_of_nested_objects_are_named_by_their_path(spark: SparkSession) -> None:
    format = Json(
        "id string, address struct<zip: string, Geo: struct<lat: double>, `Street. Nr`: string>, "
        "items array<struct<sku: string>>, `by` map<string, struct<n: bigint>>, free map<string, string>"
    )
    raw = spark.createDataFrame([(payload,) for payload in NESTED], "_raw string")
    assert {row["_raw"]: row["_unknown"] for row in format.parse(raw).collect()} == NESTED

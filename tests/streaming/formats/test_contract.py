"""Every format keeps the contract, and the contract sees one that makes a silent null."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from streaming.formats.csv import Csv
from streaming.formats.json import Json
from streaming.formats.text import Text
from tests.streaming.formats.contract import Samples, check_format

SCHEMA = "id string not null, value double"
SAMPLES = Samples(
    good={b'{"id": "a", "value": 1.5}': {"id": "a", "value": 1.5}, b'{"id": "b"}': {"id": "b", "value": None}},
    wrong={
        b'{"id": "c", "value": "1.5"}': frozenset({"value"}),
        b'{"value": 2}': frozenset({"id"}),
        b'{"id": 7, "value": true}': frozenset({"id", "value"}),
    },
    unknown={
        b'{"id": "d", "value": 1, "colour": "red"}': frozenset({"colour"}),
        b'{"id": "e", "x": {"y": 1}, "z": null}': frozenset({"x", "z"}),
    },
    unreadable=(b"", b"not json", b"[1]", b'{"id": "f"', b'{"id": "g"} {"id": "h"}', b'{"id": "\xff"}'),
)


def test_json_keeps_the_contract(spark: SparkSession) -> None:
    check_format(spark, Json(SCHEMA), SAMPLES)


def test_json_with_values_within_values_keeps_the_contract(spark: SparkSession) -> None:
    form = Json(
        "id string not null, items array<struct<price: decimal(10,2) not null, qty: int>>, "
        "by map<string, struct<n: bigint, at: timestamp>>, st struct<d: date not null, x: float, b: boolean>",
        {"id": "_id"},
    )
    instant = datetime(2026, 1, 1, 0, 0, 0, 1)
    good: dict[bytes, dict[str, Any]] = {
        b'{"_id":"a","items":[{"price":1.50,"qty":2},null],"by":{"k":{"n":1,"at":"2026-01-01T00:00:00.000001Z"},"l":null},'
        b'"st":{"d":"9999-12-31","x":0.5}}': {
            "id": "a",
            "items": [Row(price=Decimal("1.50"), qty=2), None],
            "by": {"k": Row(n=1, at=instant), "l": None},
            "st": Row(d=date.max, x=0.5, b=None),
        },
        b'{"_id":"b","items":[],"by":{}}': {"id": "b", "items": [], "by": {}, "st": None},
        b'\xef\xbb\xbf {"_id":"c"}\n': {"id": "c", "items": None, "by": None, "st": None},
    }
    wrong = {
        b'{"_id":"d","items":[{"price":1.005}],"st":{"d":"2026-01-01","x":1e39}}': frozenset({"items", "st"}),
        b'{"_id":"e","items":[{"qty":1}],"by":{"k":{"at":"2026-01-01T00:00:00"}}}': frozenset({"items", "by"}),
        b'{"_id":"\\ud83d","st":{}}': frozenset({"id", "st"}),
    }
    unknown: dict[bytes, frozenset[str]] = {
        b'{"_id":"f","id":"g","st":{"d":"2026-01-01","y":1},"by":{"k":{"z":1}}}': frozenset({"id", "st.y", "by.z"})
    }
    unreadable = (b'{"_id":"h","_id":"i"}', b'{"_id":"j"}]{"_id":"k"}', b"{'_id':'l'}", b'{"_id":NaN}')
    check_format(spark, form, Samples(good, wrong, unknown, unreadable))


def test_text_keeps_the_contract(spark: SparkSession) -> None:
    good = {text.encode(): {"line": text} for text in ("a", "", "{x}", "ü \t\n", '"')}
    check_format(spark, Text("line"), Samples(good, {}, {}, (b"\xff", b"a\xc3")))


def test_csv_keeps_the_contract(spark: SparkSession) -> None:
    form = Csv("id string not null, count int, amount decimal(5,2), at timestamp, ok boolean, d double")
    nothing: dict[str, Any] = {"count": None, "amount": None, "ok": None, "d": None}
    good = {
        b"a,1,2.50,2026-01-01T00:00:00Z,true,1e3": {
            "id": "a",
            "count": 1,
            "amount": Decimal("2.50"),
            "ok": True,
            "d": 1e3,
        },
        b"b,,,,,": {"id": "b", "at": None, **nothing},
        b'"b,""c""",,,,,\r\n': {"id": 'b,"c"', **nothing},
        b'"",-7,.5,,FALSE,-2': {"id": "", "count": -7, "amount": Decimal("0.50"), "ok": False, "d": -2.0},
        "\u00fc b,,,,,".encode(): {"id": "\u00fc b", **nothing},
        b'"two\nlines",,,,,': {"id": "two\nlines", **nothing},
    }
    wrong = {
        b",1,,,,": frozenset({"id"}),
        b"a,1.0,,,,": frozenset({"count"}),
        b"a,2147483648,,,,": frozenset({"count"}),
        b"a,,2.505,,,": frozenset({"amount"}),
        b"a,,1000,2026-01-01T00:00:00,1,NaN": frozenset({"amount", "at", "ok", "d"}),
        b",x,y,z,u,1e999": frozenset({"id", "count", "amount", "at", "ok", "d"}),
    }
    unreadable = (b"", b"a", b"a,,,,", b"a,,,,,,", b"\xff,,,,,", b"a,,,,,\nb,,,,,", b"\n", b'a,,,,,"x', b'"a"b,,,,,')
    check_format(spark, form, Samples(good, wrong, {}, unreadable))


def test_csv_with_a_header_in_each_payload_keeps_the_contract(spark: SparkSession) -> None:
    form = Csv("id string not null, size int", ";", "'", "\\", "NA", "latin-1", True, {"id": "No."})
    good: dict[bytes, dict[str, Any]] = {
        "No.;size\n\u00fc\\;;5".encode("latin-1"): {"id": "\u00fc;", "size": 5},
        b"size;No.\r\nNA;''\r\n": {"id": "", "size": None},
    }
    wrong = {b"size\n1": frozenset({"id"}), b"No.;size\na;x": frozenset({"size"})}
    unknown = {b"No.;more\na;1": frozenset({"more"})}
    check_format(
        spark, form, Samples(good, wrong, unknown, (b"No.;size", b"No.;size\n1", b"No.;size\n'a;1", b"size;size\n1;1"))
    )


@dataclass(frozen=True)
class Silent(Json):
    """Forgets the reasons against values."""

    def parse(self, raw: DataFrame) -> DataFrame:
        parsed = super().parse(raw)
        return parsed.withColumn("_wrong", F.lit(None).cast(parsed.schema["_wrong"].dataType))


def test_the_contract_sees_a_silent_null(spark: SparkSession) -> None:
    with pytest.raises(AssertionError):
        check_format(spark, Silent(SCHEMA), SAMPLES)

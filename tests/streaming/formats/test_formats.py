"""A payload whose first reading leaves no doubt is read once; it must say what the careful reading would have said."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import Json
from tests.laws.strategies import feeds, generated

SCHEMA = (
    "id string not null, at timestamp, value double, n bigint, small smallint, flag boolean, d date, "
    "dec decimal(10,2), f float, xs array<int>, st struct<v: int>, key string, unit string"
)
VALUES = (
    *(
        '"a"',
        '"5"',
        '"true"',
        '""',
        '"{x}"',
        '"a}b"',
        '"NaN"',
        '"-"',
        '"\\u0041"',
        '"é"',
        '"\\"}"',
        "'q'",
        '"Infinity"',
    ),
    *("5", "-5", "5.0", "1e2", "2.5", "-0.0", "0.1", "127", "128", "40000", "2147483648", "9223372036854775808"),
    *("1e400", "NaN", "Infinity", "-Infinity", "+1", "01", f"1.{'0' * 40}1", "1234567890" * 4),
    *("true", "false", "null", "{}", '{"v":1}', "[]", "[1]"),
    *('"2026-01-02T00:00:00Z"', '"2026-02-30T00:00:00Z"', '"x2026-01-02T00:00:00Z"', '"2026-01-02"', '"2026-13-02"'),
)
DECLARED = {
    "id": ('"a"', '"é"', '"\\u0041"', '"{x}"'),
    "at": ('"2026-01-02T00:00:00Z"', '"2026-01-02T00:00:00.123456+01:00"', '"2026-01-02T00:00:00-0130"'),
    "value": ("5", "-5", "2.5", "-0.0", "1e2", "0.1"),
    "n": ("5", "-5", "9223372036854775807"),
    "small": ("127", "-32768"),
    "flag": ("true", "false"),
    "d": ('"2026-01-02"',),
    "dec": ("5", "2.5", "-0.01", "12345678.91"),
    "f": ("5", "2.5", "-0.0"),
    "xs": ("[]", "[1]", "[1,null]"),
    "st": ("null",),
    "other": ('"x"', "1"),
    "ID": ("1", "null"),
}
"""Values as they are declared; every other value is one of these."""
BEHIND, BEFORE = (" ", "x", "{}", "}", "\t", ",", "//c"), (" ", "\ufeff", "[", "x")


def payloads(number: int) -> list[bytes]:
    """Objects of odd values, many of them damaged at an end; and lines of the laws' feeds."""
    drawn = random.Random(number)
    lines = [line for feed in generated(feeds(), 2) for line in feed.lines()]
    for _ in range(number):
        fields = (
            f'"{name}":{drawn.choice(("", "", "", " "))}{drawn.choice(drawn.choice((VALUES, DECLARED[name])))}'
            for name in drawn.choices(list(DECLARED), k=drawn.randint(0, 6))
        )
        # A payload without what is required is read carefully, whatever else it says.
        required = drawn.choice(((), ('"id":"b"',)))
        text = "{" + ",".join((*required, *fields)) + "}"
        damage = drawn.random()
        if damage < 0.05:
            text += drawn.choice(BEHIND)
        elif damage < 0.1:
            text = drawn.choice(BEFORE) + text
        elif damage < 0.12:
            text = text[:-1]
        lines.append(text.encode())
    return list(dict.fromkeys(lines))


def test_what_is_read_once_is_what_the_careful_reading_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = spark.createDataFrame([(payload,) for payload in payloads(10_000)], "_raw binary")

    def read() -> tuple[dict[bytes, str], int]:
        """Values and reasons of each payload as text, and how many were read once."""
        format, frame = Json(SCHEMA), raw
        for columns in format.stages:
            frame = frame.withColumns(columns)
        names = [column.name for column in format.columns]
        # A reason against no column is no reason, whichever way it is written.
        wrong = [F.col(f"_wrong.`{name}`").alias(f"{name}_wrong") for name in names]
        once = F.col("_careful").isNull().alias("once")
        rows = frame.select("_raw", once, *names, "_unreadable", *wrong, "_unknown").collect()
        texts = {bytes(row["_raw"]): str([row[name] for name in row.__fields__[2:]]) for row in rows}
        return texts, sum(row["once"] for row in rows)

    quick, once = read()
    assert once > 500
    monkeypatch.setattr(Json, "_certain", lambda self: F.lit(False))
    careful, none = read()
    assert none == 0
    assert quick == careful

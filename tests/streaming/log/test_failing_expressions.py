"""An expression that fails for one row rejects that row, or leaves it out of a count: the log goes on."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    Custom,
    Files,
    Json,
    Pipeline,
    Punctuated,
    Rule,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    log,
)
from streaming.lake.lake import Lake
from streaming.log import Batch, RowValidator, append_validated
from streaming.log.read import origin_type
from streaming.operations.repair import repair
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW
from tests.support.runs import run

AT = "2026-01-01T09:0{}:00Z"
COLUMNS = "id string, at timestamp, a bigint, b bigint, code string"
orders = Stream(
    "orders",
    Files("landing/orders"),
    Json(COLUMNS),
    "at",
    BoundedOutOfOrderness("0 seconds"),
    derived={"ratio": "a / b", "twice": "ratio * 2"},
    rules=(Rule("small", "cast(code as int) < 100"), Rule("positive", "twice > 0")),
)
HOSTILE = (
    {"id": "good", "at": AT.format(0), "a": 1, "b": 2, "code": "1"},
    {"id": "zero", "at": AT.format(1), "a": 1, "b": 0, "code": "1"},
    {"id": "text", "at": AT.format(2), "a": 1, "b": 2, "code": "x"},
    {"id": "both", "at": AT.format(3), "a": 3, "b": 0, "code": None},
    {"id": "last", "at": AT.format(4), "a": 4, "b": 2, "code": "99"},
)
RATIO = "derived: ratio cannot be computed: a / b, of a={}, b=0"


def reasons_of(spark: SparkSession, lake: Lake, stream: Stream) -> dict[str, list[str] | None]:
    rows = log.read_log(spark, lake, stream).where("_origin is not null").select("id", "_rejected").collect()
    return {row["id"]: row["_rejected"] for row in rows}


def test_a_row_that_a_rule_or_a_derived_column_fails_for_is_rejected_and_comes_back_when_repaired(
    spark: SparkSession, lake: Lake
) -> None:
    by_hour = Windowed("by_hour", orders, Tumbling("1 hour"), {"n": agg.count()})
    run(spark, lake, Pipeline(orders, (by_hour,)), HOSTILE)
    assert reasons_of(spark, lake, orders) == {
        "good": None,
        "zero": [RATIO.format(1)],
        "text": ["small: cannot be judged: cast(code as int) < 100, of code='x'"],
        "both": [RATIO.format(3), "small: not (cast(code as int) < 100)"],
        "last": None,
    }
    mended = Stream(
        "orders",
        orders.source,
        orders.format,
        "at",
        orders.clock,
        derived={"ratio": "a / nullif(b, 0)", "twice": "ratio * 2"},
        rules=(Rule("small", "try_cast(code as int) < 100 or code = 'x'"),),
    )
    done = repair(
        spark,
        lake,
        Pipeline(mended, (Windowed("by_hour", mended, Tumbling("1 hour"), {"n": agg.count()}),)),
        lambda: NOW,
    )
    assert (done.examined, done.repaired) == (3, 2)


moved = Stream(
    "moved",
    Files("landing/moved"),
    Json(COLUMNS),
    "at",
    Punctuated("a / b > 1"),
)
VIEWS = (
    Windowed("of_where", moved, Tumbling("1 hour"), {"n": agg.count()}, where="cast(code as int) >= 0"),
    Windowed("of_gap", moved, SessionWindow(seconds_of="cast(code as int) * 60"), {"n": agg.count()}),
    Windowed(
        "of_windows",
        moved,
        Custom("array(struct(at as start, at + make_interval(0, 0, 0, 0, 0, 0, cast(code as int)) as end))", "1 hour"),
        {"n": agg.count()},
    ),
)


@pytest.mark.long
def test_what_a_clock_or_an_operator_asks_of_a_row_keeps_no_row_from_the_log(spark: SparkSession, lake: Lake) -> None:
    counts = {view.name: found for view in VIEWS if (found := runtime_of(view, lake).counts(moved)) is not None}

    def appended(head: Batch | None, *rows: dict[str, object]) -> Batch:
        payloads = [(json.dumps(row).encode(),) for row in rows]
        raw = spark.createDataFrame(payloads, "_raw binary").withColumn("_origin", F.lit(None).cast(origin_type(moved)))
        judged = RowValidator(moved)(moved.format.parse(raw), NOW)
        return append_validated(judged, lake, moved, head, NOW, counts)

    first = appended(None, {"id": "first", "at": "2026-01-01T10:00:00Z", "a": 2, "b": 1, "code": "1"})
    assert first.after.watermark is not None
    batch = appended(first, *HOSTILE, {"id": "late", "at": AT.format(0), "a": 1, "b": 2, "code": "5"})
    rows = log.read_log(spark, lake, moved).where("id != 'first'").select("id", "_rejected").collect()
    failed = "clock: cannot tell whether the row moves it: a / b > 1, of a={}, b=0"
    assert {row["id"]: row["_rejected"] for row in rows} == {
        **dict.fromkeys(("good", "text", "last", "late")),
        "zero": [failed.format(1)],
        "both": [failed.format(3)],
    }
    assert (batch.summary.rows, batch.rejected) == (6, 2)
    # All but `text`, which none of them can ask; of the last one the gap is 99 minutes, in microseconds no int.
    assert batch.late == {"of_where": 3, "of_gap": 3, "of_windows": 3}
    assert batch.unassigned == {"of_where": 0, "of_gap": 0, "of_windows": 0}


def test_a_regular_expression_over_a_long_text_ends_no_process(spark: SparkSession) -> None:
    stream = replace(orders, derived={}, rules=(Rule("words", "code rlike '^(\\\\w|\\\\s)*$'"),))
    payloads = [
        (json.dumps({"id": "a", "at": AT.format(0), "code": text}).encode(), place)
        for place, text in enumerate(("y" * 12_000, "y" * 12_000 + "!"))
    ]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint")
    judged = RowValidator(stream)(stream.format.parse(raw), NOW).orderBy("_origin").collect()
    assert [row["_rejected"] is None for row in judged] == [True, False]


def test_a_derived_time_that_python_cannot_read_rejects_its_row_at_every_depth(spark: SparkSession) -> None:
    stream = Stream(
        "far",
        Files("landing/far"),
        Json("id string, at timestamp, n bigint"),
        "at",
        BoundedOutOfOrderness("0 seconds"),
        derived={
            "day": "date_from_unix_date(cast(n as int))",
            "instant": "timestamp_seconds(n * 86400)",
            "local": "cast(timestamp_seconds(n * 86400) as timestamp_ntz)",
            "deep": "map(id, array(named_struct('day', date_from_unix_date(cast(n as int)), 'n', n)))",
            "keys": "map(timestamp_seconds(n * 86400), id)",
            "plain": "array(n)",
        },
    )
    first, last = (datetime.min - datetime(1970, 1, 1)).days, (datetime.max - datetime(1970, 1, 1)).days
    rows = [(first - 1, False), (first, True), (0, True), (None, True), (last, True), (last + 1, False)]
    payloads = [
        (f'{{"id":"k","at":"2026-01-01T00:00:00Z","n":{"null" if n is None else n}}}'.encode(), place)
        for place, (n, _) in enumerate(rows)
        # A map has no null for a key.
        if n is not None
    ]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint")
    judged = RowValidator(stream)(stream.format.parse(raw), NOW).orderBy("_origin").toArrow().to_pylist()
    assert [row["_rejected"] is None for row in judged] == [fine for n, fine in rows if n is not None]
    reasons = [
        f"derived: {name} has a time outside the years 1 to 9999: {stream.derived[name]}, of "
        for name in ("day", "instant", "local", "deep", "keys")
    ]
    for row in (judged[0], judged[-1]):
        assert [reason[: len(start)] for reason, start in zip(row["_rejected"], reasons, strict=True)] == reasons
        assert all(row[name] is None for name in ("day", "instant", "local", "deep", "keys"))
        assert row["plain"] is not None


def test_a_derived_text_that_is_no_utf_8_rejects_its_row_at_every_depth_and_reasons_can_be_read(
    spark: SparkSession,
) -> None:
    stream = Stream(
        "broken",
        Files("landing/broken"),
        Json("id string, at timestamp, hex string"),
        "at",
        BoundedOutOfOrderness("0 seconds"),
        derived={
            "bytes": "unhex(hex)",
            "text": "cast(bytes as string)",
            "deep": "map(id, array(named_struct('text', cast(bytes as string), 'n', 1)))",
            "ratio": "1 / (length(bytes) - 1)",
        },
    )
    payloads = [
        (f'{{"id":"{place}","at":"2026-01-01T00:00:00Z","hex":{text}}}'.encode(), place)
        for place, text in enumerate(('"ff"', '"c3a9"', "null"))
    ]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint")
    judged = RowValidator(stream)(stream.format.parse(raw), NOW).orderBy("_origin").toArrow().to_pylist()
    assert judged[0]["_rejected"] == [
        "derived: text has a text that is no UTF-8: cast(bytes as string), of bytes=\ufffd",
        f"derived: deep has a text that is no UTF-8: {stream.derived['deep']}, of bytes=\ufffd, id='0'",
        "derived: ratio cannot be computed: 1 / (length(bytes) - 1), of bytes=\ufffd",
    ]
    assert (judged[0]["text"], judged[0]["deep"], judged[0]["bytes"]) == (None, None, b"\xff")
    assert [(row["_rejected"], row["text"]) for row in judged[1:]] == [(None, "\u00e9"), (None, None)]

"""Selections of streams of which rows are taken back: what is signed, what is current, and who follows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Derived,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    RowFunction,
    Selected,
    Side,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError, FrozenMapping, RetractionError
from streaming.operations import RowChoice, preview_retraction
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.reading.stored import stored_rows
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import correct, land_all

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json(
        "id string, version bigint, at timestamp, country string, amount bigint, tags array<string>, op string"
    ),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="op = 'd'",
)
LARGE = Selected(
    "large", ORDERS, select={"id": "id", "country": "country", "cents": "amount * 100"}, where="amount >= 10"
)
PIPELINE = Pipeline(ORDERS, (LARGE,))
FOLLOWER = Stream(
    name="large_orders",
    source=Table(LARGE, what="current"),
    format=Json("id string, country string, cents bigint"),
    derived={"at": "_origin.at"},
    event_time="at",
    clock=Derived(),
)
BY_MINUTE = Windowed(
    "large_by_minute", FOLLOWER, Tumbling("1 minute"), {"orders": agg.count(), "cents": agg.sum("cents")}
)
FOLLOWING = Pipeline(FOLLOWER, (BY_MINUTE,))


def order(
    id: str, version: int, seconds: float | None, amount: int, *, country: str = "DE", op: str = "u", tags: Any = ()
) -> dict[str, Any]:
    time = None if seconds is None else at(seconds).isoformat()
    values = {"id": id, "version": version, "at": time, "country": country, "amount": amount}
    return {**values, "tags": list(tags), "op": op}


def in_parts(row: Any, opened: None) -> Iterator[dict[str, Any]]:
    yield from ({"id": row.id, "part": part} for part in range(row.amount))


def signed(spark: SparkSession, lake: Lake, selected: Selected = LARGE, *columns: str) -> list[tuple[Any, ...]]:
    rows = runtime_of(selected, lake).readable["signed"](spark)
    return sorted(map(tuple, rows.selectExpr("_batch", "_change", *(columns or ("id", "cents"))).collect()))


def current(spark: SparkSession, lake: Lake, selected: Selected = LARGE, *columns: str) -> list[tuple[Any, ...]]:
    """What is current, computed, and as it lies in its table; both must be the same."""
    computed = runtime_of(selected, lake).readable["current"](spark).drop("_day")
    stored = spark.read.format("delta").load(lake.table(selected, "current")).select(computed.columns)
    found = [sorted(map(tuple, rows.select(*(columns or ("id", "cents"))).collect())) for rows in (computed, stored)]
    assert found[0] == found[1]
    return found[0]


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_what_is_selected_of_a_row_is_taken_back_with_it(spark: SparkSession, lake: Lake) -> None:
    """
    batch 0   a v1 10 · b v1 20 · c v1 5    c is left out
    batch 1   a v2 12 · b v2 9              a has another amount, b is not large any more
    batch 2   c v2 30 · a v3 deleted        c becomes large, a is gone
    """
    run(spark, lake, PIPELINE, [order("a", 1, 5, 10), order("b", 1, 6, 20), order("c", 1, 7, 5)])
    assert current(spark, lake) == [("a", 1000), ("b", 2000)]
    run(spark, lake, PIPELINE, [order("a", 2, 5, 12), order("b", 2, 6, 9)])
    assert current(spark, lake) == [("a", 1200)]
    run(spark, lake, PIPELINE, [order("c", 2, 7, 30), order("a", 3, None, 0, op="d")])
    assert current(spark, lake) == [("c", 3000)]
    assert signed(spark, lake) == [
        (0, 1, "a", 1000),
        (0, 1, "b", 2000),
        (1, -1, "a", 1000),
        (1, -1, "b", 2000),
        (1, 1, "a", 1200),
        (2, -1, "a", 1200),
        (2, 1, "c", 3000),
    ]
    stored = stored_rows(lake, PIPELINE, LARGE)
    assert stored is not None and stored.columns == ("id", "country", "cents", "_at", "_day")
    assert broken(spark, lake) == []
    then = Lake(lake.root, cut=FrozenMapping({"orders": 1}))
    found = runtime_of(LARGE, then).readable["current"](spark).select("id", "cents").collect()
    assert list(map(tuple, found)) == [("a", 1200)]


@pytest.mark.long
def test_each_element_of_what_is_exploded_and_each_row_of_a_function_is_taken_back(
    spark: SparkSession, lake: Lake
) -> None:
    words = Selected("words", ORDERS, select={"id": "id", "tag": "tag"}, explode={"tag": "tags"})

    parts = Selected("parts", ORDERS, function=RowFunction(in_parts, "id string, part int"))
    pipeline = Pipeline(ORDERS, (words, parts))
    run(spark, lake, pipeline, [order("a", 1, 5, 2, tags="xx"), order("b", 1, 5, 1, tags="y")])
    assert current(spark, lake, words, "id", "tag") == [("a", "x"), ("a", "x"), ("b", "y")]
    run(spark, lake, pipeline, [order("a", 2, 5, 3, tags="xz")])
    assert current(spark, lake, words, "id", "tag") == [("a", "x"), ("a", "z"), ("b", "y")]
    assert current(spark, lake, parts, "id", "part") == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_rows_of_several_streams_are_told_apart_and_failed_ones_are_taken_back(spark: SparkSession, lake: Lake) -> None:
    others = replace(ORDERS, name="others", source=Files("landing/others"), key=(), sequence=None, deletes=None)
    both = Selected("both", (ORDERS, others), select={"id": "id", "share": "100 div amount"}, on_error="side")
    pipeline = Pipeline(name="shop", streams=(ORDERS, others), operators=(both,))
    land_all(lake, ORDERS, [order("a", 1, 5, 4), order("b", 1, 5, 0)])
    land_all(lake, others, [order("a", 1, 5, 5)])
    run(spark, lake, pipeline)
    failed = runtime_of(both, lake).readable["failed"]
    assert current(spark, lake, both, "id", "share") == [("a", 20), ("a", 25)]
    assert failed(spark).count() == 1
    land_all(lake, ORDERS, [order("a", 2, 5, 2), order("b", 2, 5, 1)])
    run(spark, lake, pipeline)
    assert current(spark, lake, both, "id", "share") == [("a", 20), ("a", 50), ("b", 100)]
    assert failed(spark).count() == 0
    assert broken(spark, lake, pipeline) == []


def test_a_view_of_what_is_current_follows_every_revision(spark: SparkSession, lake: Lake) -> None:
    """
    00:05  a v1 10    00:06  b v1 20     2:00  c v1 50  closes the first minute
    00:05  a v2  9    is late, and not large any more
    """

    def totals() -> list[tuple[Any, ...]]:
        columns = ("unix_seconds(window_start)", "orders", "cents")
        found = runtime_of(BY_MINUTE, lake).readable["current"](spark).selectExpr(*columns).collect()
        return [(row[0] - int(T0.timestamp()), *row[1:]) for row in found]

    run(spark, lake, PIPELINE, [order("a", 1, 5, 10), order("b", 1, 6, 20)], [order("c", 1, 120, 50)])
    run(spark, lake, FOLLOWING)
    assert totals() == [(0, 2, 3000)]
    run(spark, lake, PIPELINE, [order("a", 2, 5, 9)])
    run(spark, lake, FOLLOWING)
    correct(spark, lake, BY_MINUTE, lambda: NOW)
    assert totals() == [(0, 1, 2000)]
    assert broken(spark, lake, FOLLOWING) == []


def test_a_row_that_stands_no_more_is_deleted_from_a_target_with_keys(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    told = Delivery("told", LARGE, JsonLines(str(tmp_path / "out")), key=("id",))
    pipeline = Pipeline(ORDERS, (LARGE,), deliveries=(told,))

    def lines() -> list[tuple[Any, ...]]:
        there = (tmp_path / "out").rglob("*")
        files = sorted(file for file in there if file.is_file() and not file.name.startswith("."))
        read = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return [
            (each["_revision"], each["_change"], each["id"], each.get("cents")) for each in read if "_change" in each
        ]

    assert told.what == "current"
    run(spark, lake, pipeline, [order("a", 1, 5, 10), order("b", 1, 6, 20)])
    run(spark, lake, pipeline, [order("a", 2, 5, 12), order("b", 2, 6, 9)])
    assert sorted(lines()) == [
        (0, "upsert", "a", 1000),
        (0, "upsert", "b", 2000),
        (1, "delete", "b", 2000),
        (1, "upsert", "a", 1200),
    ]


def test_what_is_built_anew_is_the_same(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [order("a", 1, 5, 10), order("b", 1, 6, 20)], [order("a", 2, 5, 12)])
    before = current(spark, lake), signed(spark, lake)
    rebuild(spark, lake, PIPELINE, LARGE, now=lambda: NOW)
    run(spark, lake, PIPELINE)
    assert (current(spark, lake), signed(spark, lake)) == before
    assert broken(spark, lake) == []


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"select": {"came": "_ingested_at"}}, "'_ingested_at', which is another one in a row that takes it back"),
        ({"where": "_batch > 3"}, "'_batch', which is another one"),
        ({"sides": {"small": Side(where="amount < 10")}}, "side output 'small' stand; declare a selection of its own"),
    ],
)
def test_what_cannot_be_taken_back_is_refused_with_the_way_out(changed: dict[str, Any], refusal: str) -> None:
    with pytest.raises(DeclarationError, match=refusal):
        Pipeline(ORDERS, (replace(LARGE, **changed),))


def test_nobody_takes_a_signed_row_for_one_that_stands() -> None:
    with pytest.raises(DeclarationError, match=r"write Table\(\.\.\., what='current'\)"):
        Table(LARGE)
    with pytest.raises(DeclarationError, match="use 'current'"):
        Delivery("told", LARGE, JsonLines("out"), what="rows")


def test_rows_of_a_stream_without_a_key_are_not_taken_back_by_hand(spark: SparkSession, lake: Lake) -> None:
    stream = replace(ORDERS, key=(), sequence=None, deletes=None)
    pipeline = Pipeline(stream, (replace(LARGE, of=stream),))
    run(spark, lake, pipeline, [order("a", 1, 5, 10)])
    with pytest.raises(RetractionError, match="without a key takes each row for one that stands"):
        preview_retraction(spark, lake, pipeline, stream, RowChoice("amount = 10"))

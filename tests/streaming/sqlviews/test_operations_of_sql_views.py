"""Upkeep of SQL views, and whoever reads them: deliveries, streams, builds anew, erasures, retention, older batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Stream,
    Table,
    View,
)
from streaming.audit.laws import audit
from streaming.catalogs.entries import lake_entries
from streaming.operations.doctor import examine
from streaming.operations.erasure.erasing import erase
from streaming.operations.erasure.rows import Person
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.comparison import Law
from streaming.operators.runtime import frame, runtime_of
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import land

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, customer string, amount bigint, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
TOTALS = View(
    "totals", "select customer, sum(amount) as amount from orders group by customer", of=(ORDERS,), key=("customer",)
)
PIPELINE = Pipeline(ORDERS, (TOTALS,))

Told = list[tuple[Any, ...]]


def order(id: str, version: int, customer: str, amount: int, *, seconds: int = 1, gone: bool = False) -> dict[str, Any]:
    time = at(seconds).isoformat()
    return {"id": id, "version": version, "at": time, "customer": customer, "amount": amount, "gone": gone}


def totals(spark: SparkSession, lake: Lake, view: View = TOTALS) -> Told:
    return sorted(tuple(row) for row in frame(spark, lake, view).select(*view.columns).collect())


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


THEN: Told = [("ann", 10), ("bob", 5)]
NOW_STANDS: Told = [("ann", 12), ("bob", 5)]


@pytest.fixture
def filled(spark: SparkSession, lake: Lake) -> Lake:
    run(spark, lake, PIPELINE, [order("1", 1, "ann", 10), order("2", 1, "bob", 5)])
    run(spark, lake, PIPELINE, [order("1", 2, "ann", 12)])
    assert totals(spark, lake) == NOW_STANDS
    return lake


def test_a_view_is_read_without_spark_and_as_of_an_older_batch(spark: SparkSession, filled: Lake) -> None:
    shown = stored_rows(filled, PIPELINE, TOTALS)
    assert shown is not None and Choice(shown).table().num_rows == 2
    signed = stored_rows(filled, PIPELINE, TOTALS, "signed")
    assert signed is not None and Choice(signed).table().num_rows == 4
    explained = runtime_of(TOTALS, filled).explain(spark)
    assert explained["computed"].startswith("for the keys (customer) that changed rows of orders may touch")
    assert explained["position"] == "batch 1"
    older = filled.as_of({"orders": 0})
    assert totals(spark, older) == THEN
    assert broken(spark, older) == []


@pytest.mark.long
def test_a_view_that_is_built_anew_has_the_rows_of_its_new_query_and_its_savepoint_goes_on(
    spark: SparkSession, filled: Lake, tmp_path: Path
) -> None:
    savepoint(filled, PIPELINE, "then", lambda: NOW)
    other = replace(TOTALS, sql="select customer, count(*) as amount from orders group by customer")
    rebuild(spark, filled, Pipeline(ORDERS, (other,)), other, now=lambda: NOW)
    run(spark, filled, Pipeline(ORDERS, (other,)), [order("3", 1, "ann", 1)])
    assert totals(spark, filled, other) == [("ann", 2), ("bob", 1)]
    assert broken(spark, filled, Pipeline(ORDERS, (other,))) == []
    elsewhere = Lake(str(tmp_path / "other"))
    restore_to(filled, PIPELINE, "then", elsewhere)
    assert totals(spark, elsewhere) == NOW_STANDS
    land(elsewhere.path("landing/orders"), [order("2", 2, "bob", 0, gone=True)], name="later.json")
    run(spark, elsewhere, PIPELINE)
    # Order 3 had landed where the savepoint's lake reads, too.
    assert totals(spark, elsewhere) == [("ann", 13)]
    assert broken(spark, elsewhere) == []


@pytest.mark.long
def test_a_person_is_erased_from_a_view_and_upkeep_changes_nothing(spark: SparkSession, filled: Lake) -> None:
    assert examine(filled, PIPELINE) == []
    maintain(filled, PIPELINE, now=lambda: NOW + timedelta(days=60))
    assert totals(spark, filled) == NOW_STANDS
    names = {entry.name for entry in lake_entries(filled, PIPELINE)}
    assert {"totals", "totals_current", "totals_changes"} <= names
    erase(spark, filled, PIPELINE, Person("customer", "ann"), now=lambda: NOW)
    assert totals(spark, filled) == NOW_STANDS[1:]
    run(spark, filled, PIPELINE, [order("2", 2, "bob", 6)])
    assert totals(spark, filled) == [("bob", 6)]
    assert broken(spark, filled) == []


def test_changes_of_a_view_are_delivered_and_followed(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """A delivery has every change, and a stream of what is current counts the rows that stand."""
    delivery = Delivery("told", TOTALS, JsonLines(str(tmp_path / "told")), what="current")
    pipeline = Pipeline(ORDERS, (TOTALS,), deliveries=(delivery,))
    stream = Stream(
        name="standing",
        source=Table(TOTALS, what="current"),
        format=Json("customer string, amount bigint"),
        derived={"taken": "_ingested_at"},
        event_time="taken",
        clock=BoundedOutOfOrderness("10 seconds"),
    )
    largest = View("largest", "select max(amount) as amount from standing", of=(stream,))
    of_each = "select customer, max(amount) as amount, count(*) as rows from standing group by customer"
    each = View("largest_of_each", of_each, of=(stream,), key=("customer",))
    follower = Pipeline(stream, (largest, each))
    run(spark, lake, pipeline, [order("1", 1, "ann", 10), order("2", 1, "bob", 5)])
    run(spark, lake, follower)
    assert totals(spark, lake, largest) == [(10,)]
    run(spark, lake, pipeline, [order("1", 2, "ann", 2)])
    run(spark, lake, follower)
    assert totals(spark, lake, largest) == [(5,)]
    assert totals(spark, lake, each) == [("ann", 2, 1), ("bob", 5, 1)]
    files = sorted(file for file in (tmp_path / "told").rglob("*") if file.is_file() and not file.name.startswith("."))
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    told = [(line["customer"], line["amount"]) for line in told if "customer" in line]
    assert told[:2] == [("ann", 10), ("bob", 5)] and ("ann", 2) in told[2:]
    assert broken(spark, lake, pipeline) == broken(spark, lake, follower) == []


@pytest.mark.parametrize(
    ("stored", "computed", "breaks"),
    [
        (0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1, False),
        (1e300, 1e300 * (1 + 4e-16), False),
        (float("nan"), float("nan"), False),
        (-0.0, 0.0, False),
        (1.0, 1.000001, True),
        (None, 0.0, True),
    ],
)
def test_a_sum_of_doubles_in_another_order_is_told_from_another_value(
    spark: SparkSession, stored: float | None, computed: float | None, breaks: bool
) -> None:
    one, other = (spark.createDataFrame([("a", value)], "k string, v double") for value in (stored, computed))
    assert Law("view", "totals", one, other, "words", in_any_order=True).finding().holds is not breaks

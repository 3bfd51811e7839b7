"""Rows that are valid and wrong are taken back by hand, put back, and corrected like any late change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.log import read_log, standing, valid
from streaming.operations import Chosen, Retraction, preview_retraction, retract, retractions
from streaming.operators.runtime import runtime_of
from streaming.revisions import standing_rows
from streaming.tables import delta, storage
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run
from tidemark.testing import correct

READINGS = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
)
MINUTES = Windowed("minutes", READINGS, Tumbling("60 seconds"), {"rows": agg.count(), "total": agg.sum("value")})
SLID = Windowed(
    "slid", READINGS, Sliding("60 seconds", "20 seconds"), {"rows": agg.count(), "most": agg.maximum("value")}
)
PIPELINE = Pipeline(READINGS, (MINUTES, SLID))
ORDERS = replace(
    READINGS,
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, value bigint, gone boolean"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
OF_ORDERS = replace(MINUTES, of=ORDERS)
SHOP = Pipeline(ORDERS, (OF_ORDERS,))


def reading(id: str, seconds: float, value: int) -> dict[str, Any]:
    return {"id": id, "at": at(seconds).isoformat(), "value": value}


def order(id: str, version: int, seconds: float, value: int) -> dict[str, Any]:
    return {**reading(id, seconds, value), "version": version, "gone": False}


def take_back(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, where: str | None = None, undoes: int | None = None
) -> Retraction | None:
    chosen = Chosen(where, undoes)
    return retract(spark, lake, pipeline, pipeline.stream, chosen, "typed twice", "ada", lambda: NOW)


def taken(retraction: Retraction | None) -> Retraction:
    assert retraction is not None
    return retraction


def windows(results: Any) -> list[tuple[int, int, int]]:
    columns = ("unix_seconds(window_start)", "rows", "total")
    return sorted((row[0] - int(T0.timestamp()), row[1], row[2]) for row in results.selectExpr(*columns).collect())


def first(spark: SparkSession, lake: Lake, view: Windowed = MINUTES) -> list[tuple[int, int, int]]:
    return windows(runtime_of(view, lake).readable["first"](spark))


def current(spark: SparkSession, lake: Lake, view: Windowed = MINUTES) -> list[tuple[int, int, int]]:
    return windows(read_current(spark, lake, view))


def orders(spark: SparkSession, lake: Lake) -> list[tuple[str, int]]:
    return sorted((row.id, row.version) for row in standing_rows(spark, lake, ORDERS).collect())


def check(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> None:
    broken = [finding for finding in audit(spark, lake, pipeline) if not finding.holds]
    assert not broken


def test_a_row_that_is_taken_back_in_time_is_in_no_first_result_and_a_late_one_is_corrected(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, PIPELINE, [reading("a", 1, 1), reading("b", 2, 10), reading("c", 70, 100)])
    before = delta.version_of(lake.log(READINGS))
    outcome = preview_retraction(spark, lake, PIPELINE, READINGS, Chosen("id = 'c'"))
    assert (outcome.rows, outcome.days, outcome.due["minutes"]) == (1, {T0.date(): 1}, ())
    assert [(each.start, each.before, each.after) for each in outcome.changes["minutes"]] == [
        (at(60), {"rows": 1, "total": 100}, None)
    ]
    assert delta.version_of(lake.log(READINGS)) == before

    # The window of c is open, and that of b is not closed by anything that came before 130.
    in_time = taken(take_back(spark, lake, PIPELINE, "id = 'c'"))
    run(spark, lake, PIPELINE, [reading("d", 71, 1000), reading("e", 200, 1)])
    assert first(spark, lake) == [(0, 2, 11), (60, 1, 1000)]

    late = taken(take_back(spark, lake, PIPELINE, "value in (10, 1000)"))
    assert (late.rows, late.who, late.reason, late.where) == (2, "ada", "typed twice", "value in (10, 1000)")
    run(spark, lake, PIPELINE)
    assert first(spark, lake) == current(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert [entry.late_pairs for entry in runtime_of(MINUTES, lake).plan(spark)] == [2]
    correct(spark, lake, MINUTES, lambda: NOW)
    correct(spark, lake, SLID, lambda: NOW)
    assert first(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert current(spark, lake) == [(0, 1, 1)]
    check(spark, lake)

    undone = taken(take_back(spark, lake, PIPELINE, undoes=late.id))
    assert (undone.undoes, undone.rows) == (late.id, 2)
    run(spark, lake, PIPELINE)
    correct(spark, lake, MINUTES, lambda: NOW)
    correct(spark, lake, SLID, lambda: NOW)
    assert current(spark, lake) == [(0, 2, 11), (60, 1, 1000)]
    assert [each.id for each in retractions(lake, PIPELINE)] == [in_time.id, late.id, undone.id]
    # Nothing is taken back twice, or put back twice.
    assert take_back(spark, lake, PIPELINE, "id = 'c'") is None
    assert take_back(spark, lake, PIPELINE, undoes=late.id) is None
    assert sorted(row.id for row in valid(standing(read_log(spark, lake, READINGS))).collect()) == ["a", "b", "d", "e"]
    check(spark, lake)


def test_a_revision_that_is_taken_back_is_a_delete_of_its_own_sequence(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, SHOP, [order("a", 5, 1, 1), order("b", 5, 2, 10), order("z", 1, 200, 0)])
    assert first(spark, lake, OF_ORDERS) == [(0, 2, 11)]
    outcome = preview_retraction(spark, lake, SHOP, ORDERS, Chosen("value < 100 and id <> 'z'"))
    assert (outcome.rows, outcome.due) == (2, {"minutes": (T0.date(),)})
    assert [each.after for each in outcome.changes["minutes"]] == [None]
    gone = taken(take_back(spark, lake, SHOP, "id in ('a', 'b')"))
    assert orders(spark, lake) == [("z", 1)]

    # An older revision, or a copy, changes nothing; a newer one adds the row again.
    run(spark, lake, SHOP, [order("a", 4, 1, 7), order("a", 5, 1, 1), order("b", 6, 2, 20)])
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    undone = taken(take_back(spark, lake, SHOP, undoes=gone.id))
    assert undone.rows == 1
    assert orders(spark, lake) == [("a", 5), ("b", 6), ("z", 1)]
    run(spark, lake, SHOP)
    correct(spark, lake, OF_ORDERS, lambda: NOW)
    assert first(spark, lake, OF_ORDERS) == [(0, 2, 11)]
    assert current(spark, lake, OF_ORDERS) == [(0, 2, 21)]
    check(spark, lake, SHOP)
    # What was put back is taken back again, by its own retraction or by a condition.
    again = taken(take_back(spark, lake, SHOP, undoes=undone.id))
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    assert taken(take_back(spark, lake, SHOP, undoes=again.id)).rows == 1
    assert taken(take_back(spark, lake, SHOP, "id = 'a'")).rows == 1
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    check(spark, lake, SHOP)
    # All of it follows from the log alone.
    for uri in (lake.log(ORDERS), lake.batches(ORDERS), lake.standing(ORDERS)):
        storage.remove_folder(uri)
    run(spark, lake, SHOP)
    assert orders(spark, lake) == [("b", 6), ("z", 1)]
    check(spark, lake, SHOP)

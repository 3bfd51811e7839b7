"""Rows of interval joins without a partner, and pairs that are taken back: made again of exactly the rows told."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Lake, Pipeline, Stream, Why, why
from streaming.base import ReadError
from streaming.service.drain import drain
from tests.support.feeds import land_all
from tests.support.instants import NOW, at

visits = Stream(
    "visits",
    Files("landing/visits"),
    Json("id string, at timestamp, pages bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
)
clicks = replace(visits, name="clicks", source=Files("landing/clicks"))
orders = replace(
    visits,
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, at timestamp, amount bigint, version bigint"),
    key=("id",),
    sequence="version",
)
met = Joined(
    "met",
    visits,
    clicks,
    on=("id",),
    between=("-1 second", "1 second"),
    kind="outer",
    select={"id": "id", "read": "left_pages", "clicked": "right_pages"},
    where="right_pages > 0",
)
paid = Joined(
    "paid",
    visits,
    orders,
    on=("id",),
    between=("0 seconds", "5 seconds"),
    select={"id": "id", "pages": "pages", "amount": "amount"},
)
THEN = (NOW + timedelta(minutes=1)).isoformat()
"""An instant between the two drains of the lake."""
site = Pipeline(name="site", streams=(visits, clicks, orders), operators=(met, paid))


def row(key: str, seconds: float, **values: int) -> dict[str, Any]:
    return {"id": key, "at": at(seconds).isoformat(), **values}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """```
    visits     a@0=1  b@10=2  c@20=3  d@20=4  end@90=9
    clicks     a@0.5=5  c@20.5=0  e@30=6  end@90=9      c did not click, and nobody visited as e
    orders     a@1=10 version 1  end@90
    then       clicks b@10.5=7, late                    b is not alone any more
               orders a@1=20 version 2                  it takes the pair of version 1 back
    ```
    """
    there = Lake(str(tmp_path_factory.mktemp("site") / "lake"))
    of_visits = [("a", 0, 1), ("b", 10, 2), ("c", 20, 3), ("d", 20, 4), ("end", 90, 9)]
    of_clicks = [("a", 0.5, 5), ("c", 20.5, 0), ("e", 30, 6), ("end", 90, 9)]
    land_all(there, visits, [row(key, seconds, pages=pages) for key, seconds, pages in of_visits])
    land_all(there, clicks, [row(key, seconds, pages=pages) for key, seconds, pages in of_clicks])
    land_all(there, orders, [row("a", 1, amount=10, version=1), row("end", 90, amount=0, version=1)])
    drain(spark, there, site, now=lambda: NOW)
    land_all(there, clicks, [row("b", 10.5, pages=7)])
    land_all(there, orders, [row("a", 1, amount=20, version=2)])
    drain(spark, there, site, now=lambda: NOW + timedelta(hours=1))
    return there


def told(spark: SparkSession, lake: Lake, of: Joined, **key: Any) -> Why:
    return why(site, of, key, lake=lake, spark=spark)


def rows_of(answer: Why) -> list[tuple[str, str, str]]:
    return sorted((each.stream, each.values["id"], each.reason) for each in answer.inputs)


def test_a_row_without_a_partner_is_found_alone_among_those_that_might_have_been_one(
    spark: SparkSession, lake: Lake
) -> None:
    answer = told(spark, lake, met, id="c", _right_at=None)
    assert (answer.agrees, answer.published[0]["read"], answer.published[0]["clicked"]) == (True, 3, None)
    assert rows_of(answer) == [
        ("clicks", "c", "no partner of it: keys, or the condition, do not hold"),
        ("visits", "c", ""),
    ]
    assert rows_of(told(spark, lake, met, id="d")) == [("visits", "d", "")]
    of_right = told(spark, lake, met, id="e")
    assert (of_right.agrees, rows_of(of_right)) == (True, [("clicks", "e", "")])


def test_a_pair_of_an_outer_join_voids_what_was_told_of_its_row_alone(spark: SparkSession, lake: Lake) -> None:
    pair = told(spark, lake, met, id="b")
    assert (pair.agrees, pair.published[0]["clicked"]) == (True, 7)
    assert rows_of(pair) == [("clicks", "b", ""), ("visits", "b", "")]
    with pytest.raises(ReadError, match="no result of"):
        told(spark, lake, met, id="b", _right_at=None)
    then = why(site, met, {"id": "b"}, lake=lake, spark=spark, as_of=THEN)
    assert (then.agrees, then.published[0]["clicked"], rows_of(then)) == (True, None, [("visits", "b", "")])


def test_a_row_that_is_not_alone_by_what_is_declared_now_is_told(spark: SparkSession, lake: Lake) -> None:
    """Without its condition the join has a pair where it told of two rows alone."""
    other = replace(met, where=None)
    answer = why(replace(site, operators=(other,)), other, {"id": "c", "_right_at": None}, lake=lake, spark=spark)
    assert answer.agrees is False and "IT IS NOT THE SAME: 1 row published, 0 rows recomputed" in answer.said


def test_a_pair_stands_by_the_revision_that_stands(spark: SparkSession, lake: Lake) -> None:
    answer = told(spark, lake, paid, id="a")
    assert (answer.agrees, answer.published[0]["amount"]) == (True, 20)
    assert [(each.stream, each.sequence, each.reason) for each in answer.inputs] == [
        ("visits", None, ""),
        ("orders", "2", ""),
    ]
    assert [[each["amount"] for each in change.now] for change in answer.changes] == [[20]]


def test_a_pair_that_was_taken_back_is_no_result_any_more_and_was_one_before(spark: SparkSession, lake: Lake) -> None:
    with pytest.raises(ReadError, match="no result of"):
        told(spark, lake, paid, id="a", amount=10)
    then = why(site, paid, {"id": "a"}, lake=lake, spark=spark, as_of=THEN)
    assert (then.agrees, then.published[0]["amount"]) == (True, 10)


def test_a_pair_whose_values_are_those_of_no_row_is_told(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    """Somebody has put the pair of the older revision back into what is current."""
    shutil.copytree(lake.root, tmp_path / "lake")
    other = Lake(str(tmp_path / "lake"))
    DeltaTable(other.table(paid, "current")).update(predicate="id = 'a'", updates={"amount": "10"})
    answer = told(spark, other, paid, id="a")
    of_orders = [each.values["amount"] for each in answer.inputs if each.stream == "orders"]
    assert (answer.agrees, of_orders) == (False, [10, 10])
    assert [each.reason for each in answer.inputs] == ["taken back"] * 3

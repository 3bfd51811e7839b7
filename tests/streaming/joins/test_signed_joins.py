"""Inner joins of streams of which rows are taken back: pairs are taken back with either of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Joined, JsonLines, Lake, Pipeline, Table
from streaming.audit.laws import audit
from streaming.base import DeclarationError, RetractionError
from streaming.operations import RowChoice, preview_retraction
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW
from tests.support.orders import CLICKS, ORDERS, PAYMENTS, deleted, row, run_sides
from tests.support.runs import run

PAID = Joined(
    "paid",
    ORDERS,
    PAYMENTS,
    on=("id",),
    between=("-1 minute", "1 minute"),
    select={"id": "id", "due": "left_amount", "paid": "right_amount"},
)
PIPELINE = Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(PAID,))


def shown(
    spark: SparkSession, lake: Lake, what: str, joined: Joined = PAID, columns: str = "id due paid"
) -> list[tuple[Any, ...]]:
    rows = runtime_of(joined, lake).readable[what](spark)
    sign = ["_change"] if what == "signed" else []
    return sorted(map(tuple, rows.selectExpr(*sign, *columns.split()).collect()))


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


def test_a_pair_is_taken_back_with_either_of_its_rows_and_with_both_at_once(spark: SparkSession, lake: Lake) -> None:
    """
    left            right
    a v1 10         a v1  7
    a v2 12                      the order changes
                    a v2  9      the payment does
    a v3 15         a v3 deleted in one step both
                    a v4 15      it is paid again
    """
    run_sides(spark, lake, PIPELINE, left=[row("a", 1, 5, 10)], right=[row("a", 1, 20, 7)])
    assert shown(spark, lake, "current") == [("a", 10, 7)]
    run_sides(spark, lake, PIPELINE, left=[row("a", 2, 5, 12)])
    assert shown(spark, lake, "current") == [("a", 12, 7)]
    run_sides(spark, lake, PIPELINE, right=[row("a", 2, 20, 9)])
    assert shown(spark, lake, "current") == [("a", 12, 9)]
    run_sides(spark, lake, PIPELINE, left=[row("a", 3, 5, 15)], right=[deleted("a", 3)])
    assert shown(spark, lake, "current") == []
    run_sides(spark, lake, PIPELINE, right=[row("a", 4, 20, 15)])
    assert shown(spark, lake, "current") == [("a", 15, 15)]
    # Five rows on either side, two of each version but the last, and each pair of them.
    assert Counter(each[1:] for each in shown(spark, lake, "signed")) == {
        ("a", due, paid): (1 if due == 15 else 2) * (1 if paid == 15 else 2)
        for due in (10, 12, 15)
        for paid in (7, 9, 15)
    }
    stored = spark.read.format("delta").load(lake.table(PAID, "current"))
    assert [tuple(each) for each in stored.select("id", "due", "paid").collect()] == [("a", 15, 15)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_stream_that_only_grows_joins_one_that_does_not(spark: SparkSession, lake: Lake) -> None:
    joined = replace(PAID, left=CLICKS, right=ORDERS)
    pipeline = Pipeline(name="shop", streams=(CLICKS, ORDERS), operators=(joined,))
    run_sides(spark, lake, pipeline, left=[row("a", 1, 5, 1), row("a", 1, 5, 1)], right=[row("a", 1, 20, 7)])
    assert shown(spark, lake, "current", joined) == [("a", 1, 7), ("a", 1, 7)]
    run_sides(spark, lake, pipeline, left=[row("a", 1, 6, 3)], right=[row("a", 2, 300, 8)])
    assert shown(spark, lake, "current", joined) == []
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_stream_that_is_joined_with_itself_meets_the_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    joined = replace(PAID, right=ORDERS, on=("country",), select={"one": "left_id", "other": "right_id"})
    pipeline = Pipeline(ORDERS, (joined,))
    run(spark, lake, pipeline, [row("a", 1, 5, 1), row("b", 1, 6, 1)])
    run(spark, lake, pipeline, [row("a", 2, 7, 2), row("c", 1, 8, 1)])
    run(spark, lake, pipeline, [deleted("b", 2)])
    expected = [("a", "a"), ("a", "c"), ("c", "a"), ("c", "c")]
    assert shown(spark, lake, "current", joined, "one other") == expected
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_pairs_that_cannot_be_computed_are_those_of_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    joined = replace(PAID, select={"id": "id", "share": "100 div right_amount"}, on_error="side")
    pipeline = Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(joined,))
    run_sides(spark, lake, pipeline, left=[row("a", 1, 5, 10)], right=[row("a", 1, 20, 0)])
    failed = runtime_of(joined, lake).readable["failed"]
    assert failed(spark).count() == 1
    run_sides(spark, lake, pipeline, right=[row("a", 2, 20, 5)])
    assert failed(spark).count() == 0
    assert shown(spark, lake, "current", joined, "id share") == [("a", 20)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_pairs_that_are_built_anew_are_the_same(spark: SparkSession, lake: Lake) -> None:
    run_sides(spark, lake, PIPELINE, left=[row("a", 1, 5, 10)], right=[row("a", 1, 20, 7), row("b", 1, 20, 7)])
    run_sides(spark, lake, PIPELINE, left=[row("a", 2, 5, 12), row("b", 1, 300, 12)])
    before = shown(spark, lake, "current")
    rebuild(spark, lake, PIPELINE, PAID, now=lambda: NOW)
    run(spark, lake, PIPELINE)
    assert shown(spark, lake, "current") == before == [("a", 12, 7)]
    assert broken(spark, lake) == []


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"kind": "left"}, "partner is taken back once its time is over; declare kind='inner'"),
        ({"late": "drop"}, "late='drop' would leave out what takes a row back; declare late='join'"),
    ],
)
def test_a_join_that_would_miss_what_is_taken_back_is_refused(changed: dict[str, Any], refusal: str) -> None:
    with pytest.raises(DeclarationError, match=refusal):
        Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(replace(PAID, **changed),))


def test_nobody_takes_a_signed_pair_for_one_that_stands() -> None:
    with pytest.raises(DeclarationError, match=r"write Table\(\.\.\., what='current'\)"):
        Table(PAID)
    with pytest.raises(DeclarationError, match="use 'current'"):
        Delivery("told", PAID, JsonLines("out"), what="rows")


@pytest.mark.long
def test_rows_without_a_key_are_not_taken_back_by_hand_where_they_are_joined(spark: SparkSession, lake: Lake) -> None:
    joined = replace(PAID, left=CLICKS, right=CLICKS)
    pipeline = Pipeline(CLICKS, (joined,))
    run(spark, lake, pipeline, [row("a", 1, 5, 1)])
    with pytest.raises(RetractionError, match="without a key takes each row for one that stands"):
        preview_retraction(spark, lake, pipeline, CLICKS, RowChoice("amount = 1"))

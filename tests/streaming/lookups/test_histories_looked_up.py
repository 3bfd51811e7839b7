"""Lookups in a history of the lake: what was valid at the time of the row, as far as it is known when it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import DimensionLookup, Enriched, History, Json, Lake, Pipeline, Stream, Table
from streaming.base import DeclarationError
from streaming.operators.runtime import frame
from streaming.service.lineage_jobs import jobs_of
from tests.streaming.keyed.test_pinned_histories import CUSTOMERS, NEWEST, SEGMENTS, VISITS, broken, customer, visit
from tests.streaming.keyed.test_pinned_histories import run as run_all


def known(history: History, name: str = "known", of: Stream = VISITS, **given: Any) -> Enriched:
    at = {"at": "at"} if history.kind == 2 else {}
    lookup = DimensionLookup(history, {"customer": "id"}, ("segment",), fresh_for="0 seconds", **{**at, **given})
    return Enriched(name, of, lookup, {"segment": "string"}, timeout="30 seconds")


AS_OF, NOW_KNOWN = known(SEGMENTS), known(NEWEST, "now_known")
# The histories are declared behind those that ask them, and step first.
PIPELINE = Pipeline(name="shop", streams=(VISITS, CUSTOMERS), operators=(AS_OF, NOW_KNOWN, SEGMENTS, NEWEST))


def run(spark: SparkSession, lake: Lake, **rows: Sequence[Any]) -> None:
    run_all(spark, lake, PIPELINE, **rows)


def answers(spark: SparkSession, lake: Lake, of: Enriched) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame(spark, lake, of).select("number", "segment").collect())


def test_an_answer_is_of_the_interval_at_the_time_of_the_row_and_stays_when_a_late_change_splits_it(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:10  v1 new     |----------------|----x
    00:50  v2 gold                     |----x
    01:00  v3 gone                          x
    00:30  v4 silver        |----------|           told between the two batches of visits

    visits        00:05   00:20   00:40   00:55  01:10
    1st batch     none    new     new     gold   none
    2nd batch                     silver
    of kind 1     none; silver is older than the delete, so it changes nothing
    """
    told = [customer(1, 10, "new"), customer(2, 50, "gold"), customer(3, 60, op="d"), customer(1, 10, "old", id="b")]
    visits = [visit(1, 5), visit(2, 20), visit(3, 40), visit(4, 55), visit(5, 70), visit(6, 20, "b")]
    run(spark, lake, customers=told, visits=visits)
    first = [(1, None), (2, "new"), (3, "new"), (4, "gold"), (5, None), (6, "old")]
    assert answers(spark, lake, AS_OF) == first
    assert answers(spark, lake, NOW_KNOWN) == [(1, None), (2, None), (3, None), (4, None), (5, None), (6, "old")]
    run(spark, lake, customers=[customer(4, 30, "silver")], visits=[visit(7, 40)])
    assert answers(spark, lake, AS_OF) == [*first, (7, "silver")]
    assert answers(spark, lake, NOW_KNOWN)[-1] == (7, None)
    assert broken(spark, lake, PIPELINE) == []


def test_the_table_of_a_history_is_told_as_read_by_who_looks_it_up(lake: Lake) -> None:
    jobs = {job.query: job for job in jobs_of(lake, PIPELINE)}
    assert lake.table(SEGMENTS) in [table.table for table in jobs["known"].reads]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"history": SEGMENTS, "at": None}, "as of no time is in history 'segments', which has all intervals of a key"),
        (
            {"history": NEWEST, "at": "at"},
            "in 'at' is in history 'customers_now', which has the newest row of each key",
        ),
        ({"history": SEGMENTS, "valid_from": "at"}, "a history tells by itself when a row is valid"),
        ({"history": SEGMENTS, "columns": ("size",)}, "names 'size', which is no column of it; these are: id, version"),
    ],
)
def test_a_lookup_that_a_history_cannot_answer_is_refused_with_what_to_write(given: dict[str, Any], says: str) -> None:
    history = given.pop("history")
    with pytest.raises(DeclarationError, match=says):
        DimensionLookup(history, **{"on": {"customer": "id"}, "columns": ("segment",), "at": "at", **given})


def test_a_history_of_what_is_looked_up_in_it_is_refused() -> None:
    following = replace(
        CUSTOMERS,
        source=Table(known(SEGMENTS)),
        format=Json("customer string, number bigint"),
        derived={"at": "_origin.at"},
        key=("customer",),
        sequence="number",
        deletes=None,
    )
    with pytest.raises(DeclarationError, match="'known' looks up rows of 'segments', which follow from its own"):
        lookup = DimensionLookup(History("segments", following), {"customer": "customer"}, ("number",), at="at")
        Enriched("known", VISITS, lookup, {"number": "bigint"})

"""Early results and updates of rows that are updated, deleted and taken back by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming import Lake, Pipeline, SessionWindow, Windowed
from streaming.base import DeclarationError
from streaming.changes import publish
from streaming.declare import CURRENT
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from tests.streaming.operations import test_retract
from tests.streaming.operations.test_retract import READINGS, reading, take_back, taken
from tests.streaming.revisions.test_revised_streams import BY_MINUTE, ORDERS, broken, order, second
from tests.support.instants import NOW
from tests.support.runs import run
from tidemark.testing import correct

UPDATED = replace(BY_MINUTE, name="updated", late="update", allowed_lateness="2 minutes", early="each batch")
VISITS = replace(UPDATED, name="visits", window=SessionWindow("30 seconds"), late="correct", allowed_lateness=None)
PIPELINE = Pipeline(ORDERS, (UPDATED,))
Results = list[tuple[Any, ...]]


def told(rows: DataFrame) -> Results:
    """Country, seconds after T0 at which a window begins, orders and what they bring."""
    start = f"unix_seconds(window_start) - {second(0)}"
    return sorted(map(tuple, rows.selectExpr("country", start, "orders", "cast(paid as double)").collect()), key=repr)


def shown(spark: SparkSession, lake: Lake, what: str = "current", view: Windowed = UPDATED) -> Results:
    return told(runtime_of(view, lake).readable[what](spark))


def days_due(spark: SparkSession, lake: Lake, view: Windowed = UPDATED) -> int:
    return len(runtime_of(view, lake).plan(spark))


def test_what_takes_a_row_back_within_the_allowed_lateness_is_told_at_once_and_later_on_by_a_correction(
    spark: SparkSession, lake: Lake
) -> None:
    """
    DE a v1 10 at 00:05, b v1 7 at 00:20    an open window of a minute
    DE c v1 1 at 02:00                      closes it: the watermark is 01:50
    DE a v2 12 at 00:05                     within two minutes of the end of the first minute: an update
    b moves to FR, a is deleted             nothing is left of the minute in DE
    FR d v1 1 at 06:40                      the watermark is 06:30
    FR b v3 9 at 00:20                      too late for an update: its day is due
    """
    run(spark, lake, PIPELINE, [order("a", 1, 5, "DE", 10), order("b", 1, 20, "DE", 7)])
    assert shown(spark, lake, "open") == [("DE", 0, 2, 17.0)]
    run(spark, lake, PIPELINE, [order("c", 1, 120, "DE", 1)])
    first = [("DE", 0, 2, 17.0)]
    assert shown(spark, lake) == shown(spark, lake, "first") == first
    assert shown(spark, lake, "open") == [("DE", 120, 1, 1.0)]

    run(spark, lake, PIPELINE, [order("a", 2, 5, "DE", 12)])
    assert shown(spark, lake) == [("DE", 0, 2, 19.0)]
    run(spark, lake, PIPELINE, [order("b", 2, 20, "FR", 7), order("a", 3, None, None, None, "d")])
    assert shown(spark, lake) == [("FR", 0, 1, 7.0)]
    updates = (
        runtime_of(UPDATED, lake).readable["updates"](spark).selectExpr("_batch", "country", "orders", "_retracted")
    )
    assert sorted(map(tuple, updates.collect())) == [
        (2, "DE", 2, False),
        (3, "DE", None, True),
        (3, "FR", 1, False),
    ]
    assert days_due(spark, lake) == 0

    run(spark, lake, PIPELINE, [order("d", 1, 400, "FR", 1)])
    run(spark, lake, PIPELINE, [order("b", 3, 20, "FR", 9)])
    assert (shown(spark, lake)[1:], days_due(spark, lake)) == ([("FR", 0, 1, 7.0)], 1)
    correct(spark, lake, UPDATED, lambda: NOW)
    publish(spark, lake, UPDATED)
    assert shown(spark, lake) == [("DE", 120, 1, 1.0), ("FR", 0, 1, 9.0)]
    assert told(delta.read(spark, lake.table(UPDATED, CURRENT))) == shown(spark, lake)
    assert shown(spark, lake, "first") == [*first, ("DE", 120, 1, 1.0)]
    assert broken(spark, lake, PIPELINE) == []


@pytest.mark.long
def test_a_visit_that_is_open_is_of_the_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    """a at 00:00, b at 00:25 and c at 00:35 are one visit, without b two; then nothing is left of the first."""
    rows = [order("a", 1, 0, "DE", 1), order("b", 1, 25, "DE", 2), order("c", 1, 35, "DE", 4)]
    pipeline = Pipeline(ORDERS, (VISITS,))
    run(spark, lake, pipeline, rows)
    assert shown(spark, lake, "open", VISITS) == [("DE", 0, 3, 7.0)]
    run(spark, lake, pipeline, [order("b", 2, None, None, None, "d")])
    assert shown(spark, lake, "open", VISITS) == [("DE", 0, 1, 1.0), ("DE", 35, 1, 4.0)]
    run(spark, lake, pipeline, [order("a", 2, 36, "DE", 8)])
    assert shown(spark, lake, "open", VISITS) == [("DE", 35, 2, 12.0)]


@pytest.mark.long
def test_a_row_that_somebody_takes_back_is_told_at_once_within_the_allowed_lateness(
    spark: SparkSession, lake: Lake
) -> None:
    """a 1 and b 10 in the first minute, c at 01:20 closes it; a is taken back, then b, and a is put back."""
    updated = replace(test_retract.MINUTES, late="update", allowed_lateness="5 minutes")
    pipeline = Pipeline(READINGS, (updated,))

    def current() -> list[tuple[int, int, int]]:
        run(spark, lake, pipeline)
        assert days_due(spark, lake, updated) == 0
        return [each for each in test_retract.current(spark, lake, updated) if each[0] == 0]

    run(spark, lake, pipeline, [reading("a", 1, 1), reading("b", 2, 10), reading("c", 80, 100)])
    assert current() == [(0, 2, 11)]
    gone = taken(take_back(spark, lake, pipeline, "id = 'a'"))
    assert current() == [(0, 1, 10)]
    taken(take_back(spark, lake, pipeline, "id = 'b'"))
    assert current() == []
    taken(take_back(spark, lake, pipeline, undoes=gone.id))
    assert current() == [(0, 1, 1)]
    test_retract.check(spark, lake, pipeline)


def test_updates_of_sessions_are_refused_where_rows_are_taken_back() -> None:
    visits = replace(VISITS, late="update", allowed_lateness="1 minute")
    with pytest.raises(DeclarationError, match="one may fall apart where a row is taken back; declare late='correct'"):
        Pipeline(ORDERS, (visits,))

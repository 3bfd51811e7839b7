"""Old days leave logs whose rows are taken back: what windows of them need stays, and what was told, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    CoGrouped,
    Files,
    Lake,
    Pipeline,
    RowChoice,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
)
from streaming.audit.laws import audit
from streaming.declare import Operator
from streaming.log import Retraction
from streaming.operations import retract
from streaming.operations.retention import Dropped, drop_days, planned_drop
from streaming.operators.runtime import runtime_of
from tests.streaming.joins.test_signed_windows import VALUES, amounts
from tests.support.instants import NOW, T0
from tests.support.orders import CLICKS, ORDERS, row
from tests.support.runs import run
from tidemark.testing import correct, land_all

DAY, HOUR = 86_400, 3_600
KEPT = replace(CLICKS, retention="2 days")
CALLS = replace(KEPT, name="calls", source=Files("landing/calls"))
PAIRS = WindowJoined("pairs", KEPT, CALLS, ("id",), Tumbling("1 hour"), VALUES, "outer")
GROUPS = CoGrouped("groups", KEPT, CALLS, ("id",), Tumbling("1 hour"), "due bigint, paid bigint", amounts)
VISITS = Windowed("visits", KEPT, SessionWindow("30 seconds"), {"rows": agg.count(), "due": agg.sum("amount")})


def day(number: int) -> date:
    return (T0 + timedelta(days=number)).date()


def current(spark: SparkSession, lake: Lake, of: Operator, *columns: str) -> list[tuple[Any, ...]]:
    """The seconds after T0 at which each window begins, and some columns."""
    start = f"unix_seconds(window_start) - {int(T0.timestamp())}"
    rows = runtime_of(of, lake).readable["current"](spark).selectExpr(start, *columns).collect()
    return sorted(map(tuple, rows), key=lambda each: (each[0], repr(each)))


def broken(spark: SparkSession, lake: Lake, *pipelines: Pipeline) -> Sequence[object]:
    return [finding for of in pipelines for finding in audit(spark, lake, of) if not finding.holds]


def corrected(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> None:
    run(spark, lake, pipeline)
    for operator in pipeline.operators:
        correct(spark, lake, operator, lambda: NOW)
    run(spark, lake, pipeline)


def taken_back(spark: SparkSession, lake: Lake, of: Pipeline, stream: Stream, chosen: str) -> Retraction | None:
    return retract(spark, lake, of, stream, RowChoice(chosen), "wrong", "ada", lambda: NOW)


def dropped(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[Dropped]:
    return drop_days(lambda: spark, lake, pipeline)


@pytest.mark.long
def test_days_of_which_rows_were_taken_back_leave_both_logs_of_a_window_join_once_they_are_corrected(
    spark: SparkSession, lake: Lake
) -> None:
    """
    clicks                   calls
    day 0  a 10 · b 20       a 7          an hour that has a pair, and a click alone
    day 1  c 5               c 6
    day 4  y, then z         y, then z    the clocks let go what is before day 2, with the rows that come after y
    the click a is taken back             day 0 waits for its correction, which leaves the call a alone
    """
    pipeline = Pipeline(name="shop", streams=(KEPT, CALLS), operators=(PAIRS, GROUPS))
    land_all(lake, KEPT, [row("a", 1, HOUR, 10), row("b", 1, HOUR, 20), row("c", 1, DAY, 5)])
    land_all(lake, CALLS, [row("a", 1, HOUR, 7), row("c", 1, DAY, 6)])
    run(spark, lake, pipeline)
    for id in "yz":
        for stream in (KEPT, CALLS):
            land_all(lake, stream, [row(id, 1, 4 * DAY + HOUR, 0)])
        run(spark, lake, pipeline)
    first = taken_back(spark, lake, pipeline, KEPT, "id = 'a'")
    assert first is not None
    run(spark, lake, pipeline)
    assert [each.rows for each in dropped(spark, lake, pipeline)] == [0, 0]
    corrected(spark, lake, pipeline)
    told = {of.name: current(spark, lake, of, "id", "due", "paid") for of in pipeline.operators}
    assert told["pairs"] == [(HOUR, "a", None, 7), (HOUR, "b", 20, None), (DAY, "c", 5, 6)]

    # A row of either side may come into an hour that began on the day before.
    outcome = dropped(spark, lake, pipeline)
    assert [(each.before, each.rows) for each in outcome] == [(day(1), 3), (day(1), 1)]
    assert {each.keeps for each in outcome} == {f"window join 'pairs' may still need rows from {day(1)} on"}
    assert {of.name: current(spark, lake, of, "id", "due", "paid") for of in pipeline.operators} == told
    assert broken(spark, lake, pipeline) == []
    # Nothing of it is left that could be put back, but of the days that are left rows can be taken back.
    assert retract(spark, lake, pipeline, KEPT, RowChoice(undoes=first.id), "right", "ada", lambda: NOW) is None
    assert taken_back(spark, lake, pipeline, CALLS, "id = 'c'") is not None
    corrected(spark, lake, pipeline)
    assert current(spark, lake, PAIRS, "id", "due", "paid") == [*told["pairs"][:2], (DAY, "c", 5, None)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_what_keeps_all_rows_that_meet_in_a_window_is_named(spark: SparkSession, lake: Lake) -> None:
    together = replace(GROUPS, window=SessionWindow("30 seconds"))
    apart = replace(PAIRS, window=SessionWindow("30 seconds"))
    paid = replace(PAIRS, left=ORDERS)
    pipelines = [Pipeline(name="shop", streams=of.reads, operators=(of,)) for of in (together, apart, paid)]
    for stream in (KEPT, CALLS, ORDERS):
        land_all(lake, stream, [row("a", 1, HOUR)])
        land_all(lake, stream, [row("z", 1, 9 * DAY)])
    for pipeline in pipelines:
        run(spark, lake, pipeline)
    reasons = [planned_drop(None, lake, pipeline, CALLS).keeps for pipeline in pipelines]
    sessions = "has windows of two streams, of which only the rows tell how far back they reach"
    assert reasons == [
        f"co-group 'groups' {sessions}",
        f"window join 'pairs' {sessions}",
        "window join 'pairs' brings it together with stream 'orders', of which rows of any day may come: it keeps "
        "everything",
    ]

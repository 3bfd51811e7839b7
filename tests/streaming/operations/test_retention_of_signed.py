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
    Derived,
    Files,
    Json,
    Keyed,
    Lake,
    Pipeline,
    RowChoice,
    SessionWindow,
    Stream,
    Table,
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
def test_what_is_current_of_a_view_leaves_the_log_of_a_window_join_that_follows_it(
    spark: SparkSession, lake: Lake
) -> None:
    """
    a click and a call a day               the clicks of each day, joined with the calls of that day
    days go from both logs
    another click of the day 0 comes late  no row of that day is taken any more: its pair stays as it was told
    another click of the day 5 comes late  the pair of that day is corrected
    """
    daily = Windowed("daily", CLICKS, Tumbling("1 day"), {"amount": agg.sum("amount")}, by=("id",))
    days = Stream(
        name="days",
        source=Table(daily, what="current"),
        format=Json("id string, amount bigint"),
        derived={"at": "_origin.at"},
        event_time="at",
        clock=Derived(max_ahead="30 days"),
        retention="2 days",
    )
    met = WindowJoined("met", days, CALLS, ("id",), Tumbling("1 day"), VALUES, "left")
    upstream, joined = Pipeline(CLICKS, (daily,)), Pipeline(name="met", streams=(days, CALLS), operators=(met,))

    def followed() -> list[tuple[Any, ...]]:
        for pipeline in (upstream, joined):
            corrected(spark, lake, pipeline)
        return current(spark, lake, met, "due", "paid")

    for numbers in (range(6), range(6, 8)):
        land_all(lake, CLICKS, [row("a", 1, number * DAY + HOUR, 10) for number in numbers])
        land_all(lake, CALLS, [row("a", 1, number * DAY + HOUR, number) for number in numbers])
        told = followed()
    assert told == [(number * DAY, 10, number) for number in range(6)]
    outcome = dropped(spark, lake, joined)
    assert [(each.stream, each.before, each.rows) for each in outcome] == [("days", day(1), 1), ("calls", day(1), 1)]
    assert current(spark, lake, met, "due", "paid") == told
    assert broken(spark, lake, upstream, joined) == []
    land_all(lake, CLICKS, [row("a", 1, 2 * HOUR, 100), row("a", 1, 5 * DAY, 1)])
    assert followed() == [*told[:5], (5 * DAY, 11, 5)]
    assert broken(spark, lake, upstream, joined) == []


@pytest.mark.long
def test_a_day_stays_on_which_all_rows_of_a_session_began_that_has_fallen_apart(
    spark: SparkSession, lake: Lake
) -> None:
    """
    day 0   o 00:00:00
    day 2   a 23:59:40                                  a session over midnight, of which the row between
    day 3   b 00:00:00 · c 00:00:20 · d 12:00:00        is taken back: a and c are two
    day 5   z                                           the clock lets go what is before day 3
    day 10  y, then x                                   and now all of it
    """
    pipeline, midnight = Pipeline(KEPT, (VISITS,)), 3 * DAY
    rows = [row("a", 1, midnight - 20, 1), row("b", 1, midnight, 2), row("c", 1, midnight + 20, 4)]
    run(spark, lake, pipeline, [row("o", 1, 0, 9)], [*rows, row("d", 1, midnight + DAY / 2, 8)])
    run(spark, lake, pipeline, [row("z", 1, 5 * DAY + HOUR, 0)])
    assert taken_back(spark, lake, pipeline, KEPT, "id = 'b'") is not None
    corrected(spark, lake, pipeline)
    apart = [(0, 9), (midnight - 20, 1), (midnight + 20, 4), (midnight + DAY // 2, 8)]
    assert current(spark, lake, VISITS, "due") == apart

    # What all of them were begins on day 2, and rows of the day before may be within its gap.
    (outcome,) = dropped(spark, lake, pipeline)
    needs = f"view 'visits' may still need rows from {day(1)} on"
    assert (outcome.before, outcome.rows, outcome.keeps) == (day(1), 1, needs)
    assert current(spark, lake, VISITS, "due") == apart
    assert broken(spark, lake, pipeline) == []

    for id in "yx":
        run(spark, lake, pipeline, [row(id, 1, 10 * DAY, 0)])
    (outcome,) = dropped(spark, lake, pipeline)
    # a to d, z, and what takes b back.
    assert (outcome.before, outcome.rows) == (day(6), 6)
    assert current(spark, lake, VISITS, "due")[:4] == apart
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


def add_up(key: Any, row: Any) -> None:
    key.due = (key.due or 0) + key.change * row.amount
    key.emit(total=key.due)


@pytest.mark.long
def test_a_row_that_was_taken_back_stays_until_who_keeps_state_of_it_has_followed(
    spark: SparkSession, lake: Lake
) -> None:
    """
    day 0  a 10
    day 4  y, then z              the clock lets go what is before day 2, and nobody has dropped it yet
    a is taken back, and the stream does not run
    maintenance                   leaves day 0, of which the function is to be told that a is gone
    the stream runs               and is told so
    maintenance                   drops day 0
    """
    totals = Keyed("totals", KEPT, ("id",), "due bigint", "total bigint", add_up, order="arrival", retractions=True)
    pipeline = Pipeline(KEPT, (totals,))
    run(spark, lake, pipeline, [row("a", 1, HOUR, 10)])
    for id in "yz":
        run(spark, lake, pipeline, [row(id, 1, 4 * DAY + HOUR, 0)])
    assert taken_back(spark, lake, pipeline, KEPT, "id = 'a'") is not None
    (left,) = dropped(spark, lake, pipeline)
    assert (left.rows, left.keeps) == (0, "keyed function 'totals' has not followed yet that rows were taken back")
    run(spark, lake, pipeline)
    rows = runtime_of(totals, lake).readable["current"](spark).where("id = 'a'").orderBy("_written_at", "_at")
    assert [each["total"] for each in rows.collect()] == [10, 0]
    assert [each.rows > 0 for each in dropped(spark, lake, pipeline)] == [True]

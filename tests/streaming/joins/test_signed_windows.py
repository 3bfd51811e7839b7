"""Window joins and co-groups of rows that are updated, deleted and taken back by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    CoGrouped,
    Delivery,
    Derived,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    Table,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.declare.two_sided import TwoSided
from streaming.operations import Person, RowChoice, erase, preview_retraction, retract
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import runtime_of
from streaming.sinks import RESULT_ID
from tests.support.instants import NOW, T0, at
from tests.support.orders import CLICKS, ORDERS, PAYMENTS, deleted, row, run_sides
from tests.support.runs import run
from tidemark.testing import correct, land, land_all

VALUES = {"due": "left_amount", "paid": "right_amount"}
PAID = WindowJoined("paid", ORDERS, PAYMENTS, ("id",), Tumbling("60 seconds"), VALUES, "left")
SHOP = Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(PAID,))


def amounts(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    yield {"due": sum(row.amount for row in left), "paid": sum(row.amount for row in right)}


TOGETHER = CoGrouped(
    "together", CLICKS, CLICKS, ("id",), SessionWindow("30 seconds"), "due bigint, paid bigint", amounts
)
BOTH = replace(TOGETHER, name="both", left=ORDERS)
Result = tuple[str, int, int, int | None, int | None]
"""Key, start and end in seconds after T0, then the values."""


def shown(spark: SparkSession, lake: Lake, what: str, of: TwoSided = PAID) -> list[Result]:
    rows = runtime_of(of, lake).readable[what](spark)
    columns = ("id", "unix_seconds(window_start)", "unix_seconds(window_end)", "due", "paid")
    origin = int(T0.timestamp())
    found = rows.selectExpr(*columns).collect()
    return sorted(((row[0], row[1] - origin, row[2] - origin, row[3], row[4]) for row in found), key=repr)


def check(spark: SparkSession, lake: Lake, pipeline: Pipeline = SHOP) -> None:
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_a_window_has_the_pairs_of_the_rows_that_stood_in_time_and_is_corrected_to_those_that_stand(
    spark: SparkSession, lake: Lake
) -> None:
    """
    orders                payments              the window from 00:00 to 01:00
    a v1 10 at 00:05      a v1 7 at 00:20
    b v1 20 at 00:10
    a v2 12 at 00:05                            a v1 is taken back in time, and was never in it
    z at 02:00            z at 02:00            (a 12 7), (b 20 -) are published
                          a v2 is deleted       the payment is taken back late: (a 12 -)
    b v2 is deleted                             a window without rows: nothing stands for (b 20 -)
                          a v3 9 at 00:40       a late payment: (a 12 9)
    a v3 15 at 01:10                            the order moves to the next window, of which nothing was told
    """
    run_sides(spark, lake, SHOP, left=[row("a", 1, 5, 10), row("b", 1, 10, 20)], right=[row("a", 1, 20, 7)])
    run_sides(spark, lake, SHOP, left=[row("a", 2, 5, 12)])
    run_sides(spark, lake, SHOP, left=[row("z", 1, 120, 0)], right=[row("z", 1, 120, 0)])
    told = [("a", 0, 60, 12, 7), ("b", 0, 60, 20, None)]
    assert shown(spark, lake, "first") == shown(spark, lake, "current") == told
    assert runtime_of(PAID, lake).plan(spark) == []

    run_sides(spark, lake, SHOP, right=[deleted("a", 2)])
    assert [entry.day for entry in runtime_of(PAID, lake).plan(spark)] == [T0.date()]
    correct(spark, lake, PAID, lambda: NOW)
    assert shown(spark, lake, "current") == [("a", 0, 60, 12, None), ("b", 0, 60, 20, None)]

    run_sides(spark, lake, SHOP, left=[deleted("b", 2)], right=[row("a", 3, 40, 9)])
    correct(spark, lake, PAID, lambda: NOW)
    assert shown(spark, lake, "current") == [("a", 0, 60, 12, 9)]

    run_sides(spark, lake, SHOP, left=[row("a", 3, 70, 15)])
    correct(spark, lake, PAID, lambda: NOW)
    assert shown(spark, lake, "current") == []
    run_sides(spark, lake, SHOP, left=[row("z", 2, 300, 0)], right=[row("z", 2, 300, 0)])
    assert shown(spark, lake, "current") == [("a", 60, 120, 15, None)]
    assert shown(spark, lake, "first") == [told[0], ("a", 60, 120, 15, None), told[1]]
    changes = spark.read.format("delta").load(lake.table(PAID, "changes"))
    net = changes.groupBy("id", "due", "paid").agg({"_change": "sum"}).where("`sum(_change)` <> 0").collect()
    assert [tuple(each) for each in net] == [("a", 15, None, 1)]
    stored = spark.read.format("delta").load(lake.table(PAID, "current"))
    assert [tuple(each) for each in stored.select("id", "due", "paid").collect()] == [("a", 15, None)]
    assert runtime_of(PAID, lake).plan(spark) == []
    check(spark, lake)


@pytest.mark.long
def test_a_session_that_falls_apart_while_it_is_open_tells_of_the_part_that_is_over(
    spark: SparkSession, lake: Lake
) -> None:
    """
    orders            clicks
    a v1 9 at 00:25   a at 00:00 (1), a at 00:50 (2)    one session, up to 01:20
    z at 01:10        z at 01:10                        the clocks come to 01:00: it is open
    a is deleted                                        two, of which the first is over
                      (1) is taken back by hand         the second alone, which is open
    z at 05:00        z at 05:00                        closes it
    """
    pipeline = Pipeline(name="shop", streams=(ORDERS, CLICKS), operators=(BOTH,))

    def corrected(of_orders: Sequence[dict[str, Any]] = (), of_clicks: Sequence[dict[str, Any]] = ()) -> list[Result]:
        run_sides(spark, lake, pipeline, left=of_orders, right=of_clicks)
        correct(spark, lake, BOTH, lambda: NOW)
        return [each for each in shown(spark, lake, "current", BOTH) if each[0] == "a"]

    assert corrected([row("a", 1, 25, 9)], [row("a", 1, 0, 1), row("a", 1, 50, 2)]) == []
    assert corrected([row("z", 1, 70, 0)], [row("z", 1, 70, 0)]) == []
    apart = [("a", 0, 30, 0, 1)]
    assert corrected([deleted("a", 2)]) == apart
    retract(spark, lake, pipeline, CLICKS, RowChoice("amount = 1"), "by a robot", "ada", lambda: NOW)
    assert corrected() == []
    # Somebody has taken back rows of one of the streams alone, and of that one not yet.
    assert shown(spark, lake.as_of({"orders": 2, "clicks": 1}), "current", BOTH) == apart
    assert corrected([row("z", 2, 300, 0)], [row("z", 2, 300, 0)]) == [("a", 50, 80, 0, 2)]
    check(spark, lake, pipeline)


@pytest.mark.long
def test_a_session_of_the_day_after_stands_until_that_day_is_corrected(spark: SparkSession, lake: Lake) -> None:
    """
    clicks                                   taps
    a at 23:59:40 (1), a at 00:00:30 (2)     z at 00:02:00      two sessions
    z at 00:02:00                                               they are over
    a at 00:00:05 (4), late                                     would join them
    (4) is taken back                                           two, and only the day of the first is corrected
                                             z is taken back    neither is of it
    """
    taps, day = replace(CLICKS, name="taps", source=Files("landing/taps")), 86_400
    beside = replace(TOGETHER, name="beside", right=taps)
    pipeline = Pipeline(name="shop", streams=(CLICKS, taps), operators=(beside,))
    both = [("a", day - 20, day + 10, 1, 0), ("a", day + 30, day + 60, 2, 0)]
    clicks = [row("a", 1, day - 20, 1), row("a", 1, day + 30, 2)]
    run_sides(spark, lake, pipeline, left=clicks, right=[row("z", 1, day + 120, 8)])
    run_sides(spark, lake, pipeline, left=[row("z", 1, day + 120, 0)])
    run_sides(spark, lake, pipeline, left=[row("a", 1, day + 5, 4)])
    retract(spark, lake, pipeline, CLICKS, RowChoice("amount = 4"), "twice", "ada", lambda: NOW)
    run(spark, lake, pipeline)
    runtime_of(beside, lake).correct(spark, [T0.date()], lambda: NOW)
    assert shown(spark, lake, "current", beside) == both
    retract(spark, lake, pipeline, taps, RowChoice("amount = 8"), "twice", "ada", lambda: NOW)
    run(spark, lake, pipeline)
    assert shown(spark, lake, "current", beside) == both
    correct(spark, lake, beside, lambda: NOW)
    assert shown(spark, lake, "current", beside) == both
    check(spark, lake, pipeline)


@pytest.mark.long
def test_a_session_of_two_streams_falls_apart_when_somebody_takes_back_the_row_between(
    spark: SparkSession, lake: Lake
) -> None:
    """
    orders           clicks
    a v1 at 00:00    a at 00:25 (1), a at 00:50 (2)    one session, which is open
    a v2 at 00:00                                      in time, before z at 05:00 closes the session
                     (1) is taken back by hand         two, the first without a click
                     it is put back                    one again
    a is deleted                                       of clicks alone
    """
    pipeline = Pipeline(name="shop", streams=(ORDERS, CLICKS), operators=(BOTH,))

    def corrected() -> list[Result]:
        run(spark, lake, pipeline)
        correct(spark, lake, BOTH, lambda: NOW)
        return [each for each in shown(spark, lake, "current", BOTH) if each[0] == "a"]

    clicks = [row("a", 1, 25, 1), row("a", 1, 50, 2)]
    run_sides(spark, lake, pipeline, left=[row("a", 1, 0, 9)], right=clicks)
    run_sides(spark, lake, pipeline, left=[row("a", 2, 0, 10), row("z", 1, 300, 0)], right=[row("z", 1, 300, 0)])
    assert corrected() == [("a", 0, 80, 10, 3)]
    outcome = preview_retraction(spark, lake, pipeline, CLICKS, RowChoice("amount = 1"))
    assert [(each.key, each.start, each.end, each.after) for each in outcome.changes["both"]] == [
        (("a",), at(0), at(30), {"due": [10], "paid": [0]}),
        (("a",), at(0), at(80), None),
        (("a",), at(50), at(80), {"due": [0], "paid": [2]}),
    ]
    assert outcome.due == {"both": (T0.date(),)}
    taken = retract(spark, lake, pipeline, CLICKS, RowChoice("amount = 1"), "by a robot", "ada", lambda: NOW)
    assert taken is not None
    assert corrected() == [("a", 0, 30, 10, 0), ("a", 50, 80, 0, 2)]
    check(spark, lake, pipeline)
    retract(spark, lake, pipeline, CLICKS, RowChoice(undoes=taken.id), "it was Bob", "ada", lambda: NOW)
    assert corrected() == [("a", 0, 80, 10, 3)]
    run_sides(spark, lake, pipeline, left=[deleted("a", 3)])
    assert corrected() == [("a", 25, 80, 0, 3)]
    check(spark, lake, pipeline)


@pytest.mark.long
def test_rows_are_taken_back_by_hand_from_sessions_that_are_open_corrected_or_over(
    spark: SparkSession, lake: Lake
) -> None:
    """
    a at 23:59:40, a at 00:00:20 a day later, late and merged by a at 00:00:00, which is late, too
    b at 00:01:30                               is open when it is taken back
    what was corrected before anything was taken back stands beside what is corrected after it
    """
    day, pipeline = 86_400, Pipeline(CLICKS, (TOGETHER,))

    def corrected() -> list[Result]:
        run(spark, lake, pipeline)
        correct(spark, lake, TOGETHER, lambda: NOW)
        return shown(spark, lake, "current", TOGETHER)

    run(spark, lake, pipeline, [row("a", 1, day - 20, 1), row("a", 1, day + 20, 2), row("c", 1, day + 40, 9)])
    run(spark, lake, pipeline, [row("b", 1, day + 90, 8)])
    run(spark, lake, pipeline, [row("b", 2, day + 91, 16)])
    assert corrected() == [
        ("a", day - 20, day + 10, 1, 1),
        ("a", day + 20, day + 50, 2, 2),
        ("c", day + 40, day + 70, 9, 9),
    ]
    run(spark, lake, pipeline, [row("a", 1, day, 4)])
    assert corrected() == [("a", day - 20, day + 50, 7, 7), ("c", day + 40, day + 70, 9, 9)]

    retract(spark, lake, pipeline, CLICKS, RowChoice("amount in (8, 9)"), "twice", "ada", lambda: NOW)
    assert corrected() == [("a", day - 20, day + 50, 7, 7)]
    check(spark, lake, pipeline)
    run(spark, lake, pipeline, [row("z", 1, day + 500, 0)])
    assert corrected() == [("a", day - 20, day + 50, 7, 7), ("b", day + 91, day + 121, 16, 16)]
    retract(spark, lake, pipeline, CLICKS, RowChoice("amount = 4"), "twice", "ada", lambda: NOW)
    assert corrected()[:2] == [("a", day - 20, day + 10, 1, 1), ("a", day + 20, day + 50, 2, 2)]
    rebuild(spark, lake, pipeline, TOGETHER, now=lambda: NOW)
    assert corrected()[2:] == [("b", day + 91, day + 121, 16, 16)]
    check(spark, lake, pipeline)


@pytest.mark.long
def test_a_chain_follows_what_is_current_through_a_window_join_and_out_of_it(spark: SparkSession, lake: Lake) -> None:
    """Totals a minute of orders, joined with the payments of their hour, and the pairs of an hour counted."""
    view = Windowed("minutes", ORDERS, Tumbling("60 seconds"), {"amount": agg.sum("amount")}, by=("id",))
    minutes = Stream(
        name="minutes_told",
        source=Table(view, what="current"),
        format=Json("id string, amount bigint, window_start timestamp"),
        event_time="window_start",
        clock=Derived(max_ahead="30 days"),
    )
    hours = WindowJoined("hours", minutes, PAYMENTS, ("id",), Tumbling("1 hour"), VALUES)
    told = Stream(
        name="hours_told",
        source=Table(hours, what="current"),
        format=Json("id string, due bigint, paid bigint, window_start timestamp"),
        event_time="window_start",
        clock=Derived(max_ahead="30 days"),
    )
    total = Windowed("total", told, Tumbling("1 hour"), {"pairs": agg.count(), "due": agg.sum("due")})
    chain = (
        Pipeline(name="orders", streams=(ORDERS,), operators=(view,)),
        Pipeline(name="hours", streams=(minutes, PAYMENTS), operators=(hours,)),
    )
    last = Pipeline(told, (total,))

    def current() -> list[tuple[Any, ...]]:
        for pipeline in (*chain, last):
            run(spark, lake, pipeline)
            for operator in pipeline.operators:
                correct(spark, lake, operator, lambda: NOW)
            run(spark, lake, pipeline)
            check(spark, lake, pipeline)
        rows = runtime_of(total, lake).readable["current"](spark)
        return [tuple(each) for each in rows.orderBy("window_start").select("pairs", "due").collect()]

    land_all(lake, ORDERS, [row("a", 1, 5, 1), row("b", 1, 5, 2), row("c", 1, 65, 4), row("z", 1, 9000, 0)])
    land_all(lake, PAYMENTS, [row(id, 1, 3000, 1) for id in "abc"], [row("z", 1, 9000, 0)])
    assert current() == [(3, 7)]
    land_all(lake, ORDERS, [row("a", 2, 5, 8), deleted("b", 2)])
    land_all(lake, PAYMENTS, [deleted("c", 2)])
    assert current() == [(1, 8)]


@pytest.mark.long
def test_what_is_done_to_a_window_join_sees_the_rows_that_stand(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    told = Delivery("told", PAID, JsonLines(str(tmp_path / "told")), what="current", select=("id", "due", "paid"))
    pipeline = replace(SHOP, deliveries=(told,))

    def current(left: Sequence[dict[str, Any]] = (), right: Sequence[dict[str, Any]] = ()) -> list[Result]:
        run_sides(spark, lake, SHOP, left=left, right=right)
        correct(spark, lake, PAID, lambda: NOW)
        return shown(spark, lake, "current")

    run_sides(spark, lake, pipeline, left=[row("a", 1, 5, 10), row("b", 1, 6, 20)], right=[row("a", 1, 20, 7)])
    run_sides(spark, lake, pipeline, left=[row("z", 1, 120, 0)], right=[row("z", 1, 120, 0)])
    before = shown(spark, lake, "current")
    assert before == [("a", 0, 60, 10, 7), ("b", 0, 60, 20, None)]
    assert current(left=[deleted("b", 2)], right=[row("a", 2, 21, 8)]) == [("a", 0, 60, 10, 8)]
    # As of the batches before.
    assert shown(spark, lake.as_of({"orders": 1, "payments": 1}), "current") == before
    taken = retract(spark, lake, SHOP, ORDERS, RowChoice("id = 'a'"), "never paid", "ada", lambda: NOW)
    assert taken is not None
    assert current() == []
    run(spark, lake, pipeline)
    files = sorted(each for each in (tmp_path / "told").rglob("*") if each.is_file() and not each.name.startswith("."))
    there: dict[str, str | None] = {}
    for line in (json.loads(line) for file in files for line in file.read_text().splitlines()):
        if "_change" in line:
            there[line[RESULT_ID]] = line["id"] if line["_change"] == "upsert" else None
    assert there and not any(there.values())
    retract(spark, lake, SHOP, ORDERS, RowChoice(undoes=taken.id), "it was", "ada", lambda: NOW)
    assert current() == [("a", 0, 60, 10, 8)]
    erase(spark, lake, SHOP, Person("id", "b"), now=lambda: NOW)
    rebuild(spark, lake, SHOP, PAID, now=lambda: NOW)
    assert current() == [("a", 0, 60, 10, 8)]
    check(spark, lake)


@pytest.mark.long
def test_sessions_are_restored_as_they_were_before_rows_were_taken_back(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    """
    a at 00:00 and 00:20                        a session of the first day
    b at 00:00, 00:25 and 00:50 two days later  one that falls apart without the row between
    c a day after that                          is open when all is saved
    a row of each is taken back
    """
    pipeline, two, three = Pipeline(CLICKS, (TOGETHER,)), 2 * 86_400, 3 * 86_400

    def corrected(of: Lake) -> list[Result]:
        run(spark, of, pipeline)
        correct(spark, of, TOGETHER, lambda: NOW)
        return shown(spark, of, "current", TOGETHER)

    run(spark, lake, pipeline, [row("a", 1, 0, 1), row("a", 1, 20, 2)])
    run(spark, lake, pipeline, [row("b", 1, two, 4), row("b", 1, two + 25, 8), row("b", 1, two + 50, 16)])
    run(spark, lake, pipeline, [row("c", 1, three, 32)])
    whole = [("a", 0, 50, 3, 3), ("b", two, two + 80, 28, 28)]
    assert corrected(lake) == whole
    savepoint(lake, pipeline, "then", lambda: NOW)
    retract(spark, lake, pipeline, CLICKS, RowChoice("amount in (2, 8, 32)"), "twice", "ada", lambda: NOW)
    apart = [("a", 0, 30, 1, 1), ("b", two, two + 30, 4, 4), ("b", two + 50, two + 80, 16, 16)]
    assert corrected(lake) == apart
    elsewhere = Lake(str(tmp_path / "other"))
    restore_to(lake, pipeline, "then", elsewhere)
    for of, expected in ((lake, apart), (elsewhere, [*whole, ("c", three, three + 30, 32, 32)])):
        # What was restored has taken files of the names that a first file would have.
        land(CLICKS.source.location(of), [row("z", 1, three + 300, 0)], name="last.json")
        assert corrected(of) == expected
        check(spark, of, pipeline)


@pytest.mark.long
def test_pairs_that_cannot_be_computed_are_those_of_rows_that_stand(spark: SparkSession, lake: Lake) -> None:
    shares = replace(PAID, select={"due": "left_amount", "paid": "100 div right_amount"}, on_error="side")
    pipeline = Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(shares,))
    run_sides(spark, lake, pipeline, left=[row("a", 1, 5, 1)], right=[row("a", 1, 20, 0), row("z", 1, 200, 1)])
    run_sides(spark, lake, pipeline, left=[row("z", 1, 200, 1)])
    failed = runtime_of(shares, lake).readable["failed"]
    assert failed(spark).count() == 1
    assert shown(spark, lake, "current", shares) == []
    run_sides(spark, lake, pipeline, right=[row("a", 2, 20, 5)])
    correct(spark, lake, shares, lambda: NOW)
    assert shown(spark, lake, "current", shares) == [("a", 0, 60, 1, 20)]
    late = runtime_of(shares, lake).readable["late"](spark).selectExpr("_side", "_change", "right.amount")
    assert sorted(map(tuple, late.collect())) == [("right", -1, 0), ("right", 1, 5)]
    run_sides(spark, lake, pipeline, left=[deleted("a", 2)])
    correct(spark, lake, shares, lambda: NOW)
    assert shown(spark, lake, "current", shares) == []
    check(spark, lake, pipeline)


@pytest.mark.long
def test_a_row_that_two_streams_have_of_one_file_is_taken_back_from_one_side_alone(
    spark: SparkSession, lake: Lake
) -> None:
    again = replace(CLICKS, name="again")
    pairs = replace(PAID, left=CLICKS, right=again, kind="outer")
    pipeline = Pipeline(name="shop", streams=(CLICKS, again), operators=(pairs,))
    run(spark, lake, pipeline, [row("a", 1, 5, 7)])
    run(spark, lake, pipeline, [row("z", 1, 120, 0)])
    assert shown(spark, lake, "current", pairs) == [("a", 0, 60, 7, 7)]
    retract(spark, lake, pipeline, CLICKS, RowChoice("amount = 7"), "twice", "ada", lambda: NOW)
    run(spark, lake, pipeline)
    correct(spark, lake, pairs, lambda: NOW)
    assert shown(spark, lake, "current", pairs) == [("a", 0, 60, None, 7)]


def test_what_would_leave_out_a_row_that_is_taken_back_late_is_refused() -> None:
    for of in (PAID, replace(TOGETHER, right=PAYMENTS)):
        with pytest.raises(DeclarationError, match="late='drop' would leave out what takes a row back, and count it"):
            Pipeline(name="shop", streams=of.reads, operators=(replace(of, late="drop"),))
    assert "_change" in [spec.name for spec in PAID.columns_of("late")]
    assert "_change" not in [spec.name for spec in TOGETHER.columns_of("late")]

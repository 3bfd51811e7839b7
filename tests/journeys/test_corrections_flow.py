"""Corrections flow through chains of views: what is current of the last is a batch over all rows of the first log."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from quality import pin, reasons_to_close
from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Derived,
    Files,
    Joined,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Selected,
    SessionWindow,
    Stream,
    Table,
    Tumbling,
    View,
    Windowed,
    WindowFunction,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError, SourceError
from streaming.changes import publish
from streaming.log import read_batches
from streaming.operations.erasure import Person, erase
from streaming.operations.rebuild import rebuild
from streaming.operators import DueDays, plan_corrections, runtime_of, upstream_lags
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
from tests.streaming.changes.test_publishing import ECHOED
from tests.support.delivering import reading, readings, visits
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import correct

orders = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("country string, at timestamp, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
by_minute = Windowed(
    "by_minute", orders, Tumbling("1 minute"), {"orders": agg.count(), "revenue": agg.sum("amount")}, by=("country",)
)
minutes = Stream(
    name="minutes",
    source=Table(by_minute, what="current"),
    format=Json("country string, window_start timestamp, orders bigint, revenue bigint"),
    derived={"at": "_origin.at"},
    event_time="at",
    clock=Derived(),
)
by_hour = Windowed(
    "by_hour",
    minutes,
    Tumbling("10 minutes"),
    {"minutes": agg.count(), "revenue": agg.sum("revenue"), "best": agg.maximum("revenue")},
    by=("country",),
)
hours = Stream(
    name="hours",
    source=Table(by_hour, what="current"),
    format=Json("country string, window_start timestamp, revenue bigint, best bigint"),
    derived={"at": "_origin.at"},
    event_time="at",
    clock=Derived(),
)
by_day = Windowed("by_day", hours, Tumbling("1 hour"), {"revenue": agg.sum("revenue"), "best": agg.maximum("best")})

CHAIN = (Pipeline(orders, (by_minute,)), Pipeline(minutes, (by_hour,)), Pipeline(hours, (by_day,)))


def order(country: str, seconds: float, amount: int) -> dict[str, Any]:
    return {"country": country, "at": at(seconds).isoformat(), "amount": amount}


def pass_through(spark: SparkSession, lake: Lake, *batches: list[dict[str, Any]]) -> None:
    """One pass from the first log to the last table: each level takes what there is, and corrects what it must."""
    for level, pipeline in enumerate(CHAIN):
        run(spark, lake, pipeline, *(batches if level == 0 else ()))
        (view,) = pipeline.views
        correct(spark, lake, view, lambda: NOW)
        publish(spark, lake, view)


def current(lake: Lake, pipeline: Pipeline) -> list[tuple[Any, ...]]:
    (view,) = pipeline.views
    return current_of(lake, pipeline, view)


def start(instant: datetime, size: timedelta) -> datetime:
    return T0 + (instant - T0) // size * size


def expected(rows: list[dict[str, Any]], closed: datetime) -> list[tuple[Any, ...]]:
    """What is current of the last view, by hand: over all orders, of the hours that the last clock has closed."""
    by_minutes: dict[tuple[str, datetime], int] = defaultdict(int)
    for row in rows:
        by_minutes[row["country"], start(datetime.fromisoformat(row["at"]), timedelta(minutes=1))] += row["amount"]
    by_tens: dict[tuple[str, datetime], list[int]] = defaultdict(list)
    for (country, minute), revenue in by_minutes.items():
        by_tens[country, start(minute, timedelta(minutes=10))].append(revenue)
    by_hours: dict[datetime, list[tuple[int, int]]] = defaultdict(list)
    for (_, ten), revenues in by_tens.items():
        by_hours[start(ten, timedelta(hours=1))].append((sum(revenues), max(revenues)))
    return [
        (hour, sum(revenue for revenue, _ in of), max(best for _, best in of))
        for hour, of in sorted(by_hours.items())
        if hour + timedelta(hours=1) <= closed
    ]


def broken(spark: SparkSession, lake: Lake) -> list[str]:
    return [
        f"{finding.law}: {finding.compared}"
        for pipeline in CHAIN
        for finding in audit(spark, lake, pipeline)
        if not finding.holds
    ]


@pytest.mark.long
def test_the_gate_of_the_last_view_waits_for_a_correction_that_is_due_at_the_first(
    spark: SparkSession, lake: Lake
) -> None:
    """09:00 an order · 11:00 closes the first hour at every level · an order of 09:00 comes late · it is corrected."""
    pass_through(spark, lake, [order("NL", 5, 10), order("NL", 2 * 3600, 1)])

    def due() -> list[str]:
        """The reasons against the report of the first day."""
        last = CHAIN[2]
        found = reasons_to_close(spark, lake, last, pin(lake, last), [T0.date()])
        return [reason.text for reason in found if reason.why == "uncorrected"]

    assert due() == []
    run(spark, lake, CHAIN[0], [order("NL", 40, 100), order("NL", 10 * 86_400, 1)])
    (reason,) = due()
    assert "late rows in by_minute, which is followed" in reason
    assert "tidemark correct orders --day 2026-01-01" in reason
    pass_through(spark, lake)
    assert due() == []
    # What is due of another day holds nobody up.
    run(spark, lake, CHAIN[0], [order("NL", 5 * 86_400, 7)])
    assert due() == []


def test_who_follows_what_is_current_can_be_asked_how_far_it_is_behind_also_without_a_stream_between() -> None:
    best = View("best", sql="select max(revenue) best from by_minute", of=(by_minute,))
    assert [each.follows_current for each in (by_minute, by_hour, by_day, best)] == [False, True, True, True]


@pytest.mark.long
def test_the_last_view_tells_how_far_it_is_behind_the_corrections_above_it(spark: SparkSession, lake: Lake) -> None:
    """09:00 an order · 11:00 closes the first hour at every level · an order of 09:00 comes late · it is corrected."""
    pass_through(spark, lake, [order("NL", 5, 10), order("NL", 2 * 3600, 1)])
    none, day = DueDays((), True), DueDays((T0.date(),), True)

    def lags() -> dict[str, tuple[DueDays, int]]:
        return {lag.upstream: (lag.due, lag.revisions) for lag in upstream_lags(lake, by_day)}

    assert list(upstream_lags(lake, by_minute)) == []
    assert lags() == {"by_hour": (none, 0), "by_minute": (none, 0)}
    run(spark, lake, CHAIN[0], [order("NL", 40, 100)])
    assert lags() == {"by_hour": (none, 0), "by_minute": (DueDays((), False), 0)}
    plan_corrections(spark, lake, by_minute)
    assert lags() == {"by_hour": (none, 0), "by_minute": (day, 0)}
    assert [str(lag) for lag in upstream_lags(lake, by_hour)] == [
        "by_hour follows by_minute, which has 1 day due to be corrected (2026-01-01)"
    ]
    correct(spark, lake, by_minute, lambda: NOW)
    publish(spark, lake, by_minute)
    assert lags() == {"by_hour": (none, 0), "by_minute": (none, 1)}
    run(spark, lake, CHAIN[1])
    plan_corrections(spark, lake, by_hour)
    assert lags() == {"by_hour": (day, 0), "by_minute": (none, 0)}
    pass_through(spark, lake)
    assert lags() == {"by_hour": (none, 0), "by_minute": (none, 0)}


@pytest.mark.long
def test_one_late_order_corrects_minute_hour_and_day(spark: SparkSession, lake: Lake) -> None:
    """09:00 three orders · 11:00 closes the first hour at every level · then an order of 09:00 comes late."""
    in_time = [order("NL", 5, 10), order("NL", 70, 20), order("DE", 130, 5), order("NL", 2 * 3600, 1)]
    pass_through(spark, lake, in_time)
    assert current(lake, CHAIN[2]) == [(T0, 35, 20)]
    late = [order("NL", 40, 100)]
    pass_through(spark, lake, late)
    assert current(lake, CHAIN[0])[0:1] == [("DE", at(120), 1, 5)]
    assert ("NL", T0, 2, 130, 110) in current(lake, CHAIN[1])
    assert current(lake, CHAIN[2]) == [(T0, 135, 110)] == expected(in_time + late, at(3600))
    assert broken(spark, lake) == []


@pytest.mark.long
def test_one_pass_corrects_each_day_once_and_a_level_only_after_the_one_it_follows(
    spark: SparkSession, lake: Lake
) -> None:
    """An order on each of two days · 02:00 closes them at every level · an order of each day comes late."""
    before = -86_400
    in_time = [order("NL", before + 5, 10), order("NL", 5, 20), order("NL", 2 * 3600, 1)]
    pass_through(spark, lake, in_time)
    late = [order("NL", before + 40, 100), order("NL", 40, 200)]
    both = [(T0 - timedelta(days=1)).date(), T0.date()]

    def due() -> list[list[date]]:
        return [[each.day for each in runtime_of(view, lake).plan(spark)] for view in (by_minute, by_hour, by_day)]

    assert due() == [[], [], []]
    run(spark, lake, CHAIN[0], late)
    for level, pipeline in enumerate(CHAIN):
        run(spark, lake, pipeline)
        assert due() == [both if each == level else [] for each in range(3)]
        (view,) = pipeline.views
        assert correct(spark, lake, view, lambda: NOW) == [day.isoformat() for day in both]
        assert due() == [[], [], []]
        publish(spark, lake, view)
    for pipeline in CHAIN:
        run(spark, lake, pipeline)
    assert due() == [[], [], []]
    assert current(lake, CHAIN[2]) == expected(in_time + late, at(3600))


@pytest.mark.long
def test_a_window_whose_rows_are_all_taken_back_is_gone(spark: SparkSession, lake: Lake) -> None:
    """A late order makes NL's minute expensive enough to leave the only window that counted it."""
    cheap = replace(by_hour, name="cheap", where="revenue < 50", aggregates={"minutes": agg.count()})
    follower = Pipeline(minutes, (cheap,))
    run(spark, lake, CHAIN[0], [order("NL", 5, 10), order("NL", 2 * 3600, 1)])
    run(spark, lake, follower)
    assert current(lake, follower) == [("NL", T0, 1)]

    run(spark, lake, CHAIN[0], [order("NL", 6, 90)])
    correct(spark, lake, by_minute, lambda: NOW)
    publish(spark, lake, by_minute)
    run(spark, lake, follower)
    correct(spark, lake, cheap, lambda: NOW)
    publish(spark, lake, cheap)
    assert current(lake, follower) == []


@pytest.mark.long
def test_what_depends_on_single_rows_takes_those_that_stand(spark: SparkSession, lake: Lake) -> None:
    best = WindowFunction(best_first, returns="place bigint, revenue bigint")
    told = {"all": agg.collect("revenue"), "last": agg.last("revenue"), "different": agg.count_distinct("orders")}
    once = replace(by_hour, name="once", aggregates={"minutes": agg.count()}, distinct=("orders",))
    views = (
        replace(by_hour, name="told", aggregates=told),
        replace(by_hour, name="ranked", aggregates={}, function=best),
        once,
    )
    follower = Pipeline(minutes, views)
    for batch in (
        [order("NL", 5, 10), order("NL", 70, 20), order("NL", 2 * 3600, 1)],
        [order("NL", 71, 5), order("NL", 6, 1)],
    ):
        run(spark, lake, CHAIN[0], batch)
        correct(spark, lake, by_minute, lambda: NOW)
        publish(spark, lake, by_minute)
        run(spark, lake, follower)
        for view in views:
            correct(spark, lake, view, lambda: NOW)
            publish(spark, lake, view)
    # 00:00 has 11 of two orders by now, 00:01 has 25 of two.
    assert [row[2:] for row in current_of(lake, follower, views[0])] == [([11, 25], 25, 1)]
    assert [row[2:] for row in current_of(lake, follower, views[1])] == [(1, 25), (2, 11)]
    assert [row[2:] for row in current_of(lake, follower, views[2])] == [(1,)]
    assert [finding for finding in audit(spark, lake, follower) if not finding.holds] == []


def best_first(rows: pd.DataFrame) -> pd.DataFrame:
    ordered = rows.sort_values("revenue", ascending=False)
    return pd.DataFrame({"place": range(1, len(ordered) + 1), "revenue": ordered["revenue"].to_numpy()})


@pytest.mark.long
def test_an_upstream_that_is_built_anew_tells_the_differences(spark: SparkSession, lake: Lake) -> None:
    in_time = [order("NL", 5, 10), order("NL", 6, 500), order("NL", 70, 20), order("NL", 2 * 3600, 1)]
    pass_through(spark, lake, in_time)
    assert current(lake, CHAIN[2]) == [(T0, 530, 510)]
    small = replace(by_minute, where="amount < 100")
    rebuild(spark, lake, Pipeline(orders, (small,)), small, now=lambda: NOW)
    for pipeline in CHAIN[1:]:
        run(spark, lake, pipeline)
        correct(spark, lake, pipeline.views[0], lambda: NOW)
        publish(spark, lake, pipeline.views[0])
    assert current(lake, CHAIN[2]) == [(T0, 30, 20)]


def test_a_clock_that_moves_without_a_result_is_replayed_by_the_audit(spark: SparkSession, lake: Lake) -> None:
    """
    00:05, 02:00   close the first minute, whose result is followed
    02:15          closes the second one, which has no result: from 00:50 on the clock goes to 01:05
    """
    orders_by_minute, of_minutes = CHAIN[:2]
    for batch in ([order("NL", 5, 10), order("NL", 120, 1)], [order("NL", 135, 1)]):
        run(spark, lake, orders_by_minute, batch)
        run(spark, lake, of_minutes)
    newest, *_ = read_batches(lake, minutes)
    assert newest.cause == "heartbeat" and newest.state.watermark == at(65)
    assert [finding for finding in audit(spark, lake, of_minutes) if not finding.holds] == []


@pytest.mark.long
def test_a_stream_of_what_an_erasure_told_anew_is_refused(spark: SparkSession, lake: Lake) -> None:
    pass_through(spark, lake, [order("NL", 5, 10), order("DE", 6, 5), order("NL", 2 * 3600, 1)])
    erase(spark, lake, CHAIN[0], Person.of("country=DE"), now=lambda: NOW)
    with pytest.raises(SourceError, match="was built anew"):
        run(spark, lake, CHAIN[1])


@pytest.mark.long
@pytest.mark.parametrize("upstream", ["keyed", "sessions"])
def test_any_operator_that_is_corrected_can_be_followed(spark: SparkSession, lake: Lake, upstream: str) -> None:
    """A late reading changes what a function has emitted for its key, and joins two visits into one."""
    of = ECHOED if upstream == "keyed" else visits
    column = "value" if upstream == "keyed" else "readings"
    clock = Derived() if upstream == "keyed" else BoundedOutOfOrderness("0 seconds")
    stream = replace(minutes, name="followed", source=Table(of, what="current"), clock=clock)
    stream = replace(stream, format=Json(f"id string, {column} bigint"))
    totals = Windowed(
        "totals", stream, Tumbling("1 minute"), {"rows": agg.count(), "total": agg.sum(column)}, by=("id",)
    )
    follower = Pipeline(stream, (totals,))
    for batch in (
        [reading("a", 1, 5), reading("a", 15, 7), reading("a", 400, 1), reading("a", 800, 1)],
        [reading("a", 8, 2)],
    ):
        run(spark, lake, Pipeline(readings, (of,)), batch)
        correct(spark, lake, of, lambda: NOW)
        publish(spark, lake, of)
        run(spark, lake, follower)
        correct(spark, lake, totals, lambda: NOW)
        publish(spark, lake, totals)
    first = current_of(lake, follower, totals)[0]
    # Three readings of the first minute, emitted one by one, or in one visit.
    assert first[1:] == ((T0, 3, 14) if upstream == "keyed" else (T0, 1, 3))
    assert [finding for finding in audit(spark, lake, follower) if not finding.holds] == []


met = Joined("met", minutes, minutes, on=("country",), between=("0 seconds", "1 hour"))
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "updates of sessions": (
        lambda: Pipeline(
            minutes,
            (replace(by_hour, window=SessionWindow("1 minute"), late="update", allowed_lateness="1 minute"),),
        ),
        "late='correct'",
    ),
    "outer join": (lambda: Pipeline(minutes, (replace(met, kind="left"),)), "kind='inner'"),
    "delivery": (
        lambda: Pipeline(minutes, (by_hour,), deliveries=(Delivery("out", minutes, JsonLines("out"), "rows"),)),
        "take back",
    ),
    "table of it": (lambda: Table(minutes), "taken back"),
    "clock": (lambda: replace(orders, clock=Derived()), "tells no watermark"),
    "clock of sessions": (lambda: replace(minutes, source=Table(visits, what="current")), "tells no watermark"),
    "delay": (lambda: Derived(delay="1 minute"), "delay"),
    "side": (lambda: Table(by_minute, side="late", what="current"), "side"),
    "circle": (lambda: replace(minutes, name="orders"), "follows itself"),
    "circle of two": (lambda: replace(hours, name="orders"), "follows itself, by way of minutes, orders"),
    "circle over a selection": (
        lambda: replace(minutes, source=Table(Selected("some", hours, ("country",)), what="current")),
        "follows itself, by way of hours, minutes, orders",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_who_would_take_a_revision_for_an_event_is_refused(what: str) -> None:
    declare, words = REFUSED[what]
    with pytest.raises(DeclarationError, match=words):
        declare()


def current_of(lake: Lake, pipeline: Pipeline, view: Windowed) -> list[tuple[Any, ...]]:
    rows = stored_rows(lake, pipeline, view)
    assert rows is not None
    columns = (*view.by, "window_start", *view.values)
    return sorted(tuple(row[name] for name in columns) for row in Choice(rows).table().to_pylist())

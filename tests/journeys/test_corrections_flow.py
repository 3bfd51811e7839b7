"""Corrections flow through chains of views: what is current of the last is a batch over all rows of the first log."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Derived,
    Files,
    Json,
    Lake,
    Pipeline,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.changes import publish
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
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
    rows = stored_rows(lake, pipeline, view)
    assert rows is not None
    columns = (*view.by, "window_start", *view.values)
    return sorted(tuple(row[name] for name in columns) for row in Choice(rows).table().to_pylist())


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

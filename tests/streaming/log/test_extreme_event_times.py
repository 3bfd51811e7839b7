"""Event times that no clock, window or date can carry: dead letters that stop nothing."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
    log,
)
from streaming.audit.laws import audit
from streaming.base import FIRST_INSTANT
from streaming.lake.lake import Lake
from streaming.log import validate
from streaming.views.corrections import correct, plan
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.runs import read_current, tuples

visits = Stream(
    name="visits",
    source=Files("landing/visits"),
    format=Json("id string not null, at timestamp"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 second"),
)
visits_by_week = Windowed("visits_by_week", visits, Tumbling("7 days"), {"visits": agg.count()}, by=("id",))
visits_by_session = Windowed("visits_by_session", visits, SessionWindow("1 hour"), {"visits": agg.count()}, by=("id",))
visits_pipeline = Pipeline(visits, (visits_by_week, visits_by_session))

WEEK, HOUR = 7 * 86_400, 3600
ZERO_DATE, YEAR_99, LAST_DAY = "0001-01-01T00:00:00Z", "0099-06-01T12:00:00Z", "9999-12-31T00:00:00Z"


def visit(instant: datetime | str) -> str:
    return json.dumps({"id": "a", "at": instant if isinstance(instant, str) else instant.isoformat()})


def land_visits_of_any_year(lake: Lake) -> None:
    """A week, a day of the next one, which closes it, and late rows; no clock can carry some of the times."""
    land_all(
        lake,
        visits,
        [visit(at(-2 * WEEK)), visit(ZERO_DATE)],
        [visit(at(-WEEK)), visit(YEAR_99)],
        [visit(at(-2 * WEEK + HOUR)), visit(ZERO_DATE), visit(YEAR_99), visit(LAST_DAY)],
    )


def visits_once_corrected(spark: SparkSession, lake: Lake) -> dict[str, list[tuple[Any, ...]]]:
    """What each view says of the current era, once every day of it that waits is corrected."""
    counts = {}
    for view in (visits_by_week, visits_by_session):
        days = [pending.day for pending in plan(spark, lake, view) if pending.day.year > 99]
        correct(spark, lake, view, days, lambda: NOW)
        current = read_current(spark, lake, view).where("window_start > '2000-01-01'")
        counts[view.name] = tuples(current, "window_start", "visits")
    return counts


CORRECTED = {
    "visits_by_week": [(at(-2 * WEEK), 2), (at(-WEEK), 1)],
    "visits_by_session": [(at(-2 * WEEK), 2), (at(-WEEK), 1)],
}


@pytest.mark.long
def test_event_times_that_no_window_can_carry_are_dead_letters_and_stop_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    land_visits_of_any_year(lake)
    drained = drain(spark, lake, visits_pipeline, end_of_input=True, now=lambda: NOW)

    assert (drained.queries["log"].batches, drained.queries["log"].rows) == (3, 8)
    dead_letters = log.rejected(log.read_log(spark, lake, visits))
    payloads = [visit(instant).encode() for instant in (ZERO_DATE, YEAR_99, ZERO_DATE, YEAR_99, LAST_DAY)]
    reason = "event_time: at lies outside the years 100 to 9899"
    assert tuples(dead_letters.selectExpr("_raw", "_rejected[0]")) == sorted((payload, reason) for payload in payloads)
    assert visits_once_corrected(spark, lake) == CORRECTED
    assert [finding for finding in audit(spark, lake, visits_pipeline) if not finding.holds] == []


@pytest.mark.long
def test_event_times_that_were_valid_in_an_older_log_stop_neither_corrections_of_other_days_nor_the_audit(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_visits_of_any_year(lake)
    with monkeypatch.context() as older:
        older.setattr(validate, "FIRST_EVENT_TIME", FIRST_INSTANT)
        older.setenv("TIDEMARK_INGEST", "careful")
        # A session remembers how it judges the rows of a stream.
        drain(spark.newSession(), lake, visits_pipeline, now=lambda: NOW)
    assert log.valid(log.read_log(spark, lake, visits)).count() == 7

    drain(spark, lake, visits_pipeline, end_of_input=True, now=lambda: NOW)

    assert visits_once_corrected(spark, lake) == CORRECTED
    assert {finding.law for finding in audit(spark, lake, visits_pipeline)} >= {"first result", "convergence"}

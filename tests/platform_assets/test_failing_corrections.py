"""A late row for which a condition or a window cannot be computed keeps no other day from its correction."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import date

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import pipelines
from platform_assets.events.backlog import settled_through
from platform_assets.events.counts import count_late
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming import (
    BoundedOutOfOrderness,
    Custom,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
)
from streaming.base.errors import CorrectionsFailed
from streaming.declare.operator import Operator
from streaming.operations.retention import planned_drop
from streaming.operators.runtime import runtime_of
from streaming.service.drain import drain_unpaused
from tests.support.feeds import land_all
from tests.support.instants import at
from tidemark.testing import correct, read

DAY = 86_400
parts = Stream(
    name="parts",
    source=Files("landing/parts"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
tens = Windowed("tens", parts, Tumbling("10 seconds"), {"rows": agg.count()}, where="60 div value > 1")
visits = replace(tens, name="visits", window=SessionWindow("10 seconds"))
stays = replace(tens, name="stays", window=SessionWindow(seconds_of="60 div value"), where=None)
PLACED = Custom("array(struct(at as start, at + make_interval(0, 0, 0, 0, 0, 0, 60 div value) as end))", "1 minute")
placed = replace(tens, name="placed", window=PLACED, where=None)
met = WindowJoined("met", parts, parts, ("id",), PLACED)
paired = replace(met, name="paired", window=stays.window)


def day(number: int) -> date:
    return at(number * DAY).date()


def land(lake: Lake, *readings: tuple[int, int, int]) -> None:
    """A file with readings, each a day, a second of it and a value."""
    rows = [{"id": "a", "at": at(each * DAY + second).isoformat(), "value": value} for each, second, value in readings]
    land_all(lake, parts, rows)


def follow(spark: SparkSession, lake: Lake, of: Pipeline) -> None:
    # No row may be further ahead of its ingestion than `max_ahead` of the clock.
    drain_unpaused(spark, lake, of, now=lambda: at(10 * DAY))


def late_on_three_days(spark: SparkSession, lake: Lake, of: Pipeline, second: int) -> None:
    """Of the second of these days the late row fails."""
    for batch in ([(each, 0, 1) for each in range(5)], [(0, second, 2), (1, second, 0), (2, second, 3)]):
        land(lake, *batch)
        follow(spark, lake, of)


NOON = DAY // 2
CASES: tuple[tuple[Operator, int, set[date]], ...] = (
    (tens, 1, {day(1)}),
    (visits, 1, {day(1)}),
    # Nobody knows how long the session of a row without a gap lasts.
    (stays, 1, {day(1), day(2)}),
    # Windows of rows within a minute of midnight may begin on either day.
    (placed, NOON, {day(1)}),
    (met, NOON, {day(1)}),
    (paired, NOON, {day(1), day(2)}),
)


@pytest.mark.long
@pytest.mark.parametrize(("view", "second", "failing"), CASES, ids=[case[0].name for case in CASES])
def test_the_day_of_such_a_row_is_named_and_all_others_are_corrected(
    spark: SparkSession, lake: Lake, view: Operator, second: int, failing: set[date]
) -> None:
    days = [day(0), day(1), day(2)]
    late_on_three_days(spark, lake, Pipeline(parts, (view,)), second)
    assert [entry.day for entry in runtime_of(view, lake).plan(spark)] == days
    assert count_late(dg.DagsterInstance.ephemeral(), spark, lake, view)["days_to_correct"] == 3
    with pytest.raises(CorrectionsFailed, match=r"2026-01-02: \[DIVIDE_BY_ZERO.*`60 div value`") as raised:
        correct(spark, lake, view)
    assert raised.value.failed.keys() == failing and raised.value.corrected.keys() == {*days} - failing
    assert {row[0] for row in read(spark, lake, view, "corrections", "_day")} == {*days} - failing
    assert {entry.day for entry in runtime_of(view, lake).plan(spark)} == failing


@pytest.mark.long
def test_nothing_is_settled_before_every_planned_day_is_corrected(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    of = Pipeline(parts, (tens,))
    late_on_three_days(spark, lake, of, 1)
    definitions = dg.Definitions.merge(
        pipeline_definitions(of),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    job = definitions.resolve_job_def("parts_corrections")
    assert not job.execute_in_process(instance=instance, raise_on_error=False).success
    assert {row[0] for row in read(spark, lake, tens, "corrections", "_day")} == {day(0), day(2)}
    assert settled_through(instance, of) is None


@pytest.mark.long
def test_other_operators_of_the_same_command_are_corrected_and_the_day_is_named(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = replace(tens, name="counts", where=None)
    of = Pipeline(parts, (tens, counts))
    late_on_three_days(spark, lake, of, 1)
    monkeypatch.setattr(pipelines, "find_pipeline", lambda name: of)
    monkeypatch.setattr(pipelines, "current_lake", lambda: lake)
    monkeypatch.setattr(pipelines, "spark_session", lambda **_: nullcontext(spark))
    with pytest.raises(CorrectionsFailed, match=r"1 day of view 'tens' cannot be corrected, 2 others are: 2026-01-02"):
        pipelines.correct("parts")
    assert {row[0] for row in read(spark, lake, counts, "corrections", "_day")} == {day(0), day(1), day(2)}


@pytest.mark.long
@pytest.mark.parametrize(
    ("view", "before", "keeps"),
    [
        (tens, day(2), "view 'tens' waits for the correction of 2026-01-04"),
        # Paused before the row, of which it may still need all since the batch that it has followed.
        (visits, day(1), "view 'visits' may still need rows from 2026-01-02 on"),
    ],
    ids=["tens", "visits"],
)
def test_retention_keeps_the_day_that_waits_and_does_not_fail(
    spark: SparkSession, lake: Lake, view: Windowed, before: date, keeps: str
) -> None:
    kept = replace(parts, retention="5 days")
    of = Pipeline(kept, (replace(view, of=kept),))
    for batch in ([(each, 0, 1) for each in range(8)], [(8, 0, 1)], [(3, 1, 0)], [(9, 0, 1)], [(9, 1, 1)]):
        land(lake, *batch)
        follow(spark, lake, of)
    planned = planned_drop(spark, lake, of, kept)
    assert (planned.before, planned.keeps) == (before, keeps)
    assert planned.days == tuple(day(each) for each in range(8) if day(each) < before)

"""Late data ask for corrections, once and only when there is something to correct."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.jobs import drain_config
from platform_assets.resources import LakeResource
from streaming import correct, plan
from streaming.drain import drain, utc_now
from streaming.lake import Lake
from streaming.pipelines.flights import departures_by_origin, pipeline
from tests.support.departures import CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.feeds import land_all

pytestmark = pytest.mark.usefixtures("spark")


def tick(platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake) -> dg.RunRequest | dg.SkipReason:
    context = dg.build_sensor_context(
        instance=instance, resources={"lake": LakeResource(home=lake.root)}, definitions=platform
    )
    answer = platform.resolve_sensor_def("flights_late_data")(context)
    assert isinstance(answer, dg.RunRequest | dg.SkipReason)
    return answer


def days(request: dg.RunRequest | dg.SkipReason) -> list[str]:
    assert isinstance(request, dg.RunRequest)
    chosen: list[str] = request.run_config["ops"]["correct_departures_by_origin"]["config"]["days"]
    return chosen


def follow(
    platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake, result: dg.ExecuteInProcessResult
) -> Any:
    run = result.dagster_run
    context = dg.build_run_status_sensor_context(
        sensor_name="on_time_performance_follows",
        dagster_event=next(event for event in result.all_events if event.is_job_success),
        dagster_instance=instance,
        dagster_run=run,
        resources={"lake": LakeResource(home=lake.root)},
    )
    return platform.resolve_sensor_def("on_time_performance_follows")(context)


def test_each_backlog_is_asked_for_once_with_exactly_its_days(
    platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    # Before any data, and with nothing but data in time, nobody is asked.
    assert isinstance(tick(platform, instance, lake), dg.SkipReason)
    land_all(lake, pipeline.stream, FIRST, SECOND, THIRD, CLOSING)
    drained = platform.resolve_job_def("flights_drain").execute_in_process(instance=instance)
    assert isinstance(tick(platform, instance, lake), dg.SkipReason)
    assert isinstance(follow(platform, instance, lake, drained), dg.RunRequest)

    # Two late flights, two days apart: the turning point.
    land_all(lake, pipeline.stream, LATE_ON_1, LATE_ON_3)
    drained = platform.resolve_job_def("flights_drain").execute_in_process(instance=instance)
    asked, again = tick(platform, instance, lake), tick(platform, instance, lake)
    assert days(asked) == ["2013-01-01", "2013-01-03"]
    assert isinstance(asked, dg.RunRequest) and isinstance(again, dg.RunRequest)
    assert asked.run_key == again.run_key
    assert isinstance(follow(platform, instance, lake, drained), dg.SkipReason)

    corrected = platform.resolve_job_def("flights_corrections").execute_in_process(
        run_config=asked.run_config, instance=instance
    )
    assert isinstance(tick(platform, instance, lake), dg.SkipReason)
    assert isinstance(follow(platform, instance, lake, corrected), dg.RunRequest)

    # More late rows on a day that is corrected already: another backlog.
    land_all(lake, pipeline.stream, LATE_ON_1)
    platform.resolve_job_def("flights_drain").execute_in_process(instance=instance)
    renewed = tick(platform, instance, lake)
    assert days(renewed) == ["2013-01-01"]
    assert isinstance(renewed, dg.RunRequest) and renewed.run_key != asked.run_key


def test_late_data_that_dagster_did_not_see_are_planned_by_the_run(
    spark: SparkSession, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    land_all(lake, pipeline.stream, FIRST, CLOSING, LATE_ON_1)
    drain(spark, lake, pipeline)
    asked = tick(platform, instance, lake)
    assert days(asked) == []
    assert isinstance(asked, dg.RunRequest)
    platform.resolve_job_def("flights_corrections").execute_in_process(run_config=asked.run_config, instance=instance)
    assert plan(spark, lake, departures_by_origin) == []
    assert isinstance(tick(platform, instance, lake), dg.SkipReason)


def test_corrections_made_without_dagster_count_too(
    spark: SparkSession, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    land_all(lake, pipeline.stream, FIRST, CLOSING, LATE_ON_1)
    platform.resolve_job_def("flights_drain").execute_in_process(
        run_config=drain_config(pipeline, end_of_input=True), instance=instance
    )
    (open_day,) = plan(spark, lake, departures_by_origin)
    assert days(tick(platform, instance, lake)) == [open_day.day.isoformat()]
    correct(spark, lake, departures_by_origin, [open_day.day], utc_now)
    assert isinstance(tick(platform, instance, lake), dg.SkipReason)

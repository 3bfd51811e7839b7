"""Late data ask for corrections, once and only when there is something to correct."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.events.counts import count_late
from platform_assets.keys import late_key, source_key
from platform_assets.pipeline.schedules import next_corrections
from platform_assets.pipeline.sources import next_drain
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report
from platform_assets.resources import LakeResource
from platform_assets.tags import PIPELINE_TAG, PROCESS_TAG
from streaming import correct, plan
from streaming.base.intervals import utc_now
from streaming.lake.lake import Lake
from streaming.service.lease import take_lease
from tests.support.departures import CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.feeds import Payload, land_all
from tests.support.runs import run


class Timeline:
    """A lake on which things happen one after the other, and what the sensor says in between."""

    def __init__(self, spark: SparkSession, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake) -> None:
        self.spark, self.platform, self.instance, self.lake = spark, platform, instance, lake

    def arrive(self, *batches: Iterable[Payload], seen_by_dagster: bool = True) -> None:
        """Drain new batches; Dagster's own drain counts the late pairs, as its last step."""
        run(self.spark, self.lake, pipeline, *batches)
        if seen_by_dagster:
            count = count_late(self.instance, self.spark, self.lake, departures_by_origin)
            event = dg.AssetMaterialization(late_key(departures_by_origin), metadata=count)
            self.instance.report_runless_asset_event(event)

    def correct(self, days: Sequence[str]) -> None:
        correct(self.spark, self.lake, departures_by_origin, map(date.fromisoformat, days), utc_now)

    def tick(self) -> dg.RunRequest | dg.SkipReason:
        context = dg.build_sensor_context(instance=self.instance, resources={"lake": self._lake_resource()})
        answer = self.platform.resolve_sensor_def("flights_late_data")(context)
        assert isinstance(answer, dg.RunRequest | dg.SkipReason)
        return answer

    def arrivals(self) -> dg.SensorResult | dg.SkipReason:
        return next_drain(self.instance, self.lake, pipeline)

    def follow(self, result: dg.ExecuteInProcessResult) -> dg.RunRequest | dg.SkipReason:
        context = dg.build_run_status_sensor_context(
            sensor_name="on_time_performance_follows",
            dagster_event=next(event for event in result.all_events if event.is_job_success),
            dagster_instance=self.instance,
            dagster_run=result.dagster_run,
            resources={"lake": self._lake_resource()},
        )
        answer = self.platform.resolve_sensor_def("on_time_performance_follows")(context)
        assert isinstance(answer, dg.RunRequest | dg.SkipReason)
        return answer

    def plan_and_correct(self, **options: Any) -> dg.ExecuteInProcessResult:
        job = self.platform.resolve_job_def("flights_corrections")
        return job.execute_in_process(instance=self.instance, **options)

    def _lake_resource(self) -> LakeResource:
        return LakeResource(home=self.lake.root)


@pytest.fixture
def timeline(spark: SparkSession, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake) -> Timeline:
    return Timeline(spark, platform, instance, lake)


def asked(answer: dg.RunRequest | dg.SkipReason) -> tuple[str, list[str]]:
    """The run key and the days of a request."""
    assert isinstance(answer, dg.RunRequest), answer
    return str(answer.run_key), answer.run_config["ops"]["flights__departures_by_origin_correct"]["config"]["days"]


@pytest.mark.long
def test_each_backlog_is_asked_for_once_with_exactly_its_days(timeline: Timeline) -> None:
    # Before any data, and with nothing but data in time, nobody is asked.
    assert isinstance(timeline.tick(), dg.SkipReason)
    timeline.arrive(FIRST, SECOND, THIRD, CLOSING)
    assert isinstance(timeline.tick(), dg.SkipReason)

    # Two late flights, two days apart: the turning point. Dagster starts one run per run key.
    timeline.arrive(LATE_ON_1, LATE_ON_3)
    key, days = asked(timeline.tick())
    assert days == ["2013-01-01", "2013-01-03"]
    assert asked(timeline.tick()) == (key, days)

    # One of them corrected by hand, the other still waits; then none.
    timeline.correct(["2013-01-03"])
    assert asked(timeline.tick())[1] == ["2013-01-01"]
    timeline.correct(["2013-01-01"])
    assert isinstance(timeline.tick(), dg.SkipReason)

    # More late rows on a day that is corrected already: another backlog.
    timeline.arrive(LATE_ON_1)
    renewed, days = asked(timeline.tick())
    assert days == ["2013-01-01"]
    assert renewed != key


@pytest.mark.long
def test_late_data_that_dagster_did_not_see_are_planned_by_the_run(timeline: Timeline) -> None:
    timeline.arrive(FIRST, CLOSING, LATE_ON_1, seen_by_dagster=False)
    assert asked(timeline.tick())[1] == []
    timeline.plan_and_correct()
    assert plan(timeline.spark, timeline.lake, departures_by_origin) == []
    assert isinstance(timeline.tick(), dg.SkipReason)


def test_nobody_is_asked_while_a_run_of_the_pipeline_is_in_progress(timeline: Timeline) -> None:
    timeline.arrive(FIRST, CLOSING, LATE_ON_1)
    timeline.instance.create_run_for_job(
        timeline.platform.resolve_job_def("flights_corrections"),
        status=dg.DagsterRunStatus.STARTED,
        tags={PIPELINE_TAG: "flights"},
    )
    assert timeline.tick() == dg.SkipReason("a run of flights is in progress")


def test_what_lands_is_drained_once_for_each_backlog(timeline: Timeline) -> None:
    def asked_for() -> tuple[str | None, dict[str, Any]]:
        """The run key of a request, and what the source's asset is told."""
        answer = timeline.arrivals()
        assert isinstance(answer, dg.SensorResult), answer
        (request,), (event,) = answer.run_requests or (), answer.asset_events
        assert event.asset_key == source_key(pipeline.stream)
        return request.run_key, {name: entry.value for name, entry in event.metadata.items()}

    nothing = dg.SkipReason("nothing waits for flights")
    assert timeline.arrivals() == nothing  # there is no landing folder yet
    land_all(timeline.lake, pipeline.stream, FIRST)
    key, metadata = asked_for()
    assert (metadata["backlog_files"], metadata["backlog_bytes"] > 0) == (1, True)
    # A drain that failed is not asked for again, until there is more.
    assert asked_for()[0] == key
    land_all(timeline.lake, pipeline.stream, SECOND)
    more, metadata = asked_for()
    assert (more != key, metadata["backlog_files"]) == (True, 2)
    timeline.instance.create_run_for_job(
        timeline.platform.resolve_job_def("flights_drain"),
        status=dg.DagsterRunStatus.STARTED,
        tags={PIPELINE_TAG: "flights"},
    )
    assert timeline.arrivals() == dg.SkipReason("a run of flights is in progress")
    timeline.instance.delete_run(timeline.instance.get_runs()[0].run_id)
    # Once they are taken, the same number of files is another backlog.
    timeline.arrive()
    assert timeline.arrivals() == nothing
    land_all(timeline.lake, pipeline.stream, FIRST)
    assert asked_for()[0] not in (key, more)


def test_what_lands_is_left_to_whoever_holds_the_pipeline(instance: dg.DagsterInstance, lake: Lake) -> None:
    land_all(lake, pipeline.stream, FIRST)
    with take_lease(lake, pipeline, "stream"):
        answer = next_drain(instance, lake, pipeline)
    assert isinstance(answer, dg.SkipReason) and "flights is held by" in str(answer.skip_message)


@pytest.mark.long
def test_the_hourly_corrections_start_nothing_where_nothing_waits(timeline: Timeline) -> None:
    def hour() -> dg.RunRequest | dg.SkipReason:
        return next_corrections(timeline.instance, timeline.lake, pipeline)

    nothing = dg.SkipReason("every late pair of flights is corrected")
    assert hour() == nothing  # there is no log yet
    timeline.arrive(FIRST, CLOSING, seen_by_dagster=False)
    assert isinstance(hour(), dg.RunRequest)  # nobody has counted
    timeline.plan_and_correct()
    assert hour() == nothing
    timeline.arrive(LATE_ON_1, seen_by_dagster=False)
    assert isinstance(hour(), dg.RunRequest)
    timeline.plan_and_correct()
    assert hour() == nothing
    # Whoever removes the corrections takes what was said of them with it.
    shutil.rmtree(timeline.lake.corrections(departures_by_origin))
    assert isinstance(hour(), dg.RunRequest)


@pytest.mark.long
def test_the_report_follows_once_nothing_waits_for_a_correction(timeline: Timeline) -> None:
    timeline.arrive(FIRST, CLOSING)
    quiet = timeline.plan_and_correct()
    assert isinstance(timeline.follow(quiet), dg.RunRequest)
    # A process that runs the jobs one after the other publishes by itself.
    assert isinstance(timeline.follow(timeline.plan_and_correct(tags={PROCESS_TAG: "1"})), dg.SkipReason)
    # Once it is published, it is not published again from the same tables; unless its CSV is not there.
    report = find_report("on_time_performance")
    judge_and_publish(timeline.spark, timeline.lake, report, "run")
    answer = timeline.follow(quiet)
    assert isinstance(answer, dg.SkipReason) and "exactly these versions" in str(answer.skip_message)
    Path(f"{timeline.lake.report(report.name)}.csv").unlink()
    assert isinstance(timeline.follow(quiet), dg.RunRequest)
    timeline.arrive(LATE_ON_1)
    assert isinstance(timeline.follow(quiet), dg.SkipReason)

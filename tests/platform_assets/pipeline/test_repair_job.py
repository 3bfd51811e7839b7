"""The repair job: a preview by default, and what Dagster and the gate are told once it has written."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as rooms
from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.events.backlog import waiting
from platform_assets.keys import late_key, log_key, rejected_key
from platform_assets.pipeline.repair import repair_job, repair_step
from platform_assets.resources import default_resources
from quality import Suite, run_suite, suites_for
from streaming import Files, Pipeline, Rule, drain
from streaming.lake.lake import Lake
from streaming.log.batches import head
from streaming.log.read import read_log
from streaming.tables import delta
from tests.support.departures import BROKEN, FIRST, SECOND, THIRD
from tests.support.feeds import land_all, readings
from tests.support.instants import NOW

pytestmark = pytest.mark.usefixtures("spark")

# A rule that refuses the departures of the third day; the declaration that the job repairs by no longer has it.
_STRICT_STREAM = replace(
    pipeline.stream, rules=(*pipeline.stream.rules, Rule("second_at_most", "sched_dep < timestamp '2013-01-03'"))
)
STRICT = Pipeline(_STRICT_STREAM, (replace(departures_by_origin, of=_STRICT_STREAM),))
ARRIVAL = datetime(2013, 1, 3, 9, tzinfo=UTC)


@pytest.mark.long
def test_the_job_previews_unless_told_to_write_and_the_log_counts_a_repaired_row_once(
    platform: dg.Definitions, instance: dg.DagsterInstance, spark: SparkSession, lake: Lake
) -> None:
    land_all(lake, pipeline.stream, [*FIRST, *SECOND], [*THIRD, *BROKEN])
    drain(spark, lake, STRICT, end_of_input=True, now=lambda: ARRIVAL)
    before = delta.version_of(lake.log(pipeline.stream))
    assert rejected_share(spark, lake).endswith("rejected=4, rows_read=10")

    report = metadata(run(platform, instance, None))
    assert (report["examined"], report["would_pass"]) == (4, 3)
    assert "| EWR | 2013-01-03 10:00:00 to 2013-01-03 11:00:00 | 1 | flights none -> 1;" in report["preview"]
    assert delta.version_of(lake.log(pipeline.stream)) == before

    report = metadata(run(platform, instance, writing(pipeline)))
    assert (report["examined"], report["repaired"]) == (4, 3)
    assert materialized(instance)["newest_batch"] == getattr(head(lake, pipeline.stream), "number", None)
    left = observed(instance, rejected_key(pipeline.stream))
    assert left["dagster/row_count"] == 1 and "| json | 1 |" in left["reasons"]
    assert observed(instance, late_key(departures_by_origin))["dagster/row_count"] == 0
    assert waiting(instance, lake, departures_by_origin) is None
    assert rejected_share(spark, lake).endswith("rejected=1, rows_read=10")

    report = metadata(run(platform, instance, writing(pipeline)))
    assert (report["examined"], report["repaired"]) == (1, 0)


def test_repaired_rows_are_told_of_the_log_to_which_they_came_back(
    instance: dg.DagsterInstance, spark: SparkSession, lake: Lake
) -> None:
    """Of two streams only the second has rejected rows that pass now."""
    yards = replace(rooms, name="yards", source=Files("landing/yards"))
    strict = replace(yards, rules=(Rule("even_second", "timestamp % 2000 = 0"),))
    house, before = (
        Pipeline(name="house", streams=(rooms, each), operators=(replace(count_by_sensor, of=each),))
        for each in (yards, strict)
    )
    land_all(lake, rooms, [*readings("a@1"), "not JSON"])
    land_all(lake, yards, readings("y@1, y@2"))
    drain(spark, lake, before, now=lambda: NOW)

    job = dg.Definitions(jobs=[repair_job(house)], resources=default_resources(lake.root)).resolve_job_def(
        "house_repair"
    )
    done = job.execute_in_process(run_config=writing(house), instance=instance)
    assert (metadata(done)["examined"], metadata(done)["repaired"]) == (2, 1)
    assert instance.get_latest_materialization_event(log_key(rooms)) is None
    event = instance.get_latest_materialization_event(log_key(yards))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["newest_batch"].value == 1
    assert observed(instance, rejected_key(yards))["dagster/row_count"] == 0


def writing(of: Pipeline) -> dict[str, object]:
    return {"ops": {repair_step(of): {"config": {"preview": False}}}}


def run(platform: dg.Definitions, instance: dg.DagsterInstance, config: Any) -> dg.ExecuteInProcessResult:
    done = platform.resolve_job_def("flights_repair").execute_in_process(run_config=config, instance=instance)
    assert done.success
    return done


def metadata(done: dg.ExecuteInProcessResult) -> dict[str, Any]:
    (output,) = [event.step_output_data for event in done.all_events if event.is_successful_output]
    return {name: entry.value for name, entry in output.metadata.items()}


def materialized(instance: dg.DagsterInstance) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(log_key(pipeline.stream))
    assert event is not None and event.asset_materialization is not None
    return {name: entry.value for name, entry in event.asset_materialization.metadata.items()}


def observed(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    (record,) = instance.fetch_observations(key, limit=1).records
    assert record.event_log_entry.asset_observation is not None
    return {name: entry.value for name, entry in record.event_log_entry.asset_observation.metadata.items()}


def rejected_share(spark: SparkSession, lake: Lake) -> str:
    """What the expectation on the share of rejected rows observes."""
    whole = suites_for(pipeline)["log"]
    asked = Suite(tuple(one for one in whole.expectations if one.name == "rejected_share"), whole.only)
    (finding,) = run_suite(lambda: read_log(spark, lake, pipeline.stream), asked)
    assert finding.outcome == "failed"
    return finding.observed

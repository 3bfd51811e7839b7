"""Commands leave commits, and Dagster is told of them once, without Spark."""

from __future__ import annotations

from datetime import date
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets import keys
from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.events.backlog import waiting
from platform_assets.events.counts import count_late
from platform_assets.events.evaluations import last_evaluation
from platform_assets.partitions import days_of
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report
from platform_assets.resources import LakeResource
from streaming import correct
from streaming.base import utc_now
from streaming.lake import Lake
from streaming.operations import maintain
from streaming.service.lease import take_lease
from streaming.tables import delta
from tests.support.departures import CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.runs import run

LOG, VIEW = keys.log_key(pipeline.stream), keys.table_key(departures_by_origin)
CURRENT, LATE = keys.current_keys(departures_by_origin)[0], keys.late_key(departures_by_origin)
CORRECTIONS, REPORT = keys.corrections_key(departures_by_origin), keys.report_key("on_time_performance")


class Told:
    """An instance, a lake, and the sensor that tells the one of the other."""

    def __init__(self, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake) -> None:
        self._platform, self._instance, self._lake = platform, instance, lake
        self._cursor: str | None = None

    def tick(self) -> str:
        resources = {"lake": LakeResource(home=self._lake.root)}
        with dg.build_sensor_context(self._instance, cursor=self._cursor, resources=resources) as context:
            ticked = self._platform.resolve_sensor_def("flights_commits").evaluate_tick(context)
        self._cursor = ticked.cursor
        return str(ticked.skip_message)

    def last(self, key: dg.AssetKey) -> dict[str, Any]:
        event = self._instance.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None, key
        return {name: entry.value for name, entry in event.asset_materialization.metadata.items()}

    def times(self, key: dg.AssetKey) -> int:
        return len(self._instance.fetch_materializations(key, limit=100).records)


@pytest.fixture
def told(platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake) -> Told:
    return Told(platform, instance, lake)


@pytest.mark.long
def test_what_commands_have_written_is_told_once_with_version_rows_batches_and_days(
    told: Told, instance: dg.DagsterInstance, spark: SparkSession, lake: Lake
) -> None:
    assert told.tick() == "everything written of flights is told already"
    run(spark, lake, pipeline, FIRST, SECOND, THIRD, CLOSING)
    told.tick()
    log = told.last(LOG)
    assert log["delta_version"] == delta.opened(lake.log(pipeline.stream)).version()
    assert log["dagster/row_count"] == log["new_rows"] == delta.row_count(delta.opened(lake.log(pipeline.stream)))
    assert (log["first_batch"], log["newest_batch"]) == (0, 3)
    assert told.last(VIEW)["through_batch"] == 3
    assert told.last(VIEW)["delta_version"] == delta.opened(lake.table(departures_by_origin)).version()
    shown = set(keys.streamed_keys(pipeline)) | {CURRENT}
    assert all(told.times(key) == 1 for key in shown)
    assert told.tick() == "everything written of flights is told already"

    # More by a command, some of it late, and a correction of one of two days.
    run(spark, lake, pipeline, LATE_ON_1, LATE_ON_3)
    correct(spark, lake, departures_by_origin, [date(2013, 1, 3)], utc_now)
    told.tick()
    assert (told.last(LOG)["first_batch"], told.last(LOG)["newest_batch"]) == (4, 5)
    assert told.last(LATE)["dagster/row_count"] == 2
    partitions = instance.get_materialized_partitions(CORRECTIONS)
    assert partitions == {"2013-01-03"}
    assert instance.get_dynamic_partitions(str(days_of(departures_by_origin).name)) == ["2013-01-03"]
    assert told.last(CORRECTIONS)["through_batch"] == 5
    assert told.last(CORRECTIONS)["dagster/partition_row_count"] >= 1
    assert told.times(CURRENT) == 2
    correct(spark, lake, departures_by_origin, [date(2013, 1, 1)], utc_now)
    told.tick()
    assert instance.get_materialized_partitions(CORRECTIONS) == {"2013-01-01", "2013-01-03"}
    # The day that was corrected before is not told again.
    assert told.times(CORRECTIONS) == 2

    # Compaction changes no row.
    before = delta.opened(lake.log(pipeline.stream)).version()
    maintain(lake, pipeline)
    assert delta.opened(lake.log(pipeline.stream)).version() > before
    assert told.tick() == "everything written of flights is told already"

    judge_and_publish(spark, lake, find_report("on_time_performance"), "cli-1")
    assert "reports/on_time_performance" in told.tick()
    assert told.last(REPORT)["pinned_versions"]["log"] == delta.opened(lake.log(pipeline.stream)).version()
    verdict = last_evaluation(instance, dg.AssetCheckKey(VIEW, "unique_key"))
    assert verdict is not None and verdict.passed
    assert told.tick() == "everything written of flights is told already"


def test_a_count_of_late_pairs_stays_what_it_was_where_a_command_brings_none(
    told: Told, instance: dg.DagsterInstance, spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline, FIRST, CLOSING, LATE_ON_1)
    counted = count_late(instance, spark, lake, departures_by_origin)
    instance.report_runless_asset_event(dg.AssetMaterialization(LATE, metadata=counted))
    waits = waiting(instance, lake, departures_by_origin)
    assert waits is not None and waits.days == (date(2013, 1, 1),)
    run(spark, lake, pipeline, CLOSING)
    told.tick()
    assert told.times(LATE) == 2
    assert waiting(instance, lake, departures_by_origin) == waits


def test_nothing_is_told_while_a_command_holds_the_pipeline(told: Told, spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, FIRST)
    with take_lease(lake, pipeline, "drain"):
        assert "is held by" in told.tick()
    assert "flights/log" in told.tick()

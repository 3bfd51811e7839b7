"""Dagster lets corrections flow: what one level has corrected is drained, and corrected, by the next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.keys import source_key, table_key
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.sources import next_drain
from platform_assets.resources import LakeResource, default_resources
from streaming import Lake, Pipeline
from streaming.declare import CURRENT
from tests.journeys.test_corrections_flow import CHAIN, by_hour, by_minute, current, expected, hours, minutes, order
from tests.support.feeds import land_all
from tests.support.instants import T0, at


class Platform:
    """The chain as Dagster has it, whose sensors are asked by the test."""

    def __init__(self, lake: Lake, instance: dg.DagsterInstance) -> None:
        self.lake, self.instance = lake, instance
        self.definitions = dg.Definitions.merge(
            *(pipeline_definitions(pipeline, []) for pipeline in CHAIN),
            dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
        )

    def follow(self, pipeline: Pipeline) -> list[str]:
        """Run what the sensors of a pipeline ask for; returns the jobs."""
        jobs = []
        if isinstance(next_drain(self.instance, self.lake, pipeline), dg.SensorResult):
            jobs.append(self._run(f"{pipeline.name}_drain", {}))
        context = dg.build_sensor_context(instance=self.instance, resources={"lake": LakeResource(home=self.lake.root)})
        asked = self.definitions.resolve_sensor_def(f"{pipeline.name}_late_data")(context)
        if isinstance(asked, dg.RunRequest):
            jobs.append(self._run(f"{pipeline.name}_corrections", asked.run_config))
        return jobs

    def _run(self, job: str, config: Mapping[str, Any]) -> str:
        result = self.definitions.resolve_job_def(job).execute_in_process(
            run_config=dict(config), instance=self.instance
        )
        assert result.success
        return job


@pytest.mark.long
def test_a_correction_makes_the_levels_behind_it_due_in_order_and_each_once(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    platform = Platform(lake, instance)
    in_time, late = [order("NL", 5, 10), order("NL", 70, 20), order("NL", 2 * 3600, 1)], [order("NL", 40, 100)]
    land_all(lake, CHAIN[0].stream, in_time)
    drains = [f"{pipeline.name}_drain" for pipeline in CHAIN]
    assert [job for pipeline in CHAIN for job in platform.follow(pipeline)] == drains
    assert current(lake, CHAIN[2]) == [(T0, 30, 20)]

    land_all(lake, CHAIN[0].stream, late)
    both = [f"{pipeline.name}_{job}" for pipeline in CHAIN for job in ("drain", "corrections")]
    assert [job for pipeline in CHAIN for job in platform.follow(pipeline)] == both
    assert current(lake, CHAIN[2]) == [(T0, 130, 110)] == expected(in_time + late, at(3600))
    assert [job for pipeline in CHAIN for job in platform.follow(pipeline)] == []

    graph = platform.definitions.resolve_asset_graph()
    assert graph.get(source_key(minutes)).parent_keys == {table_key(by_minute, CURRENT)}
    assert graph.get(source_key(hours)).parent_keys == {table_key(by_hour, CURRENT)}

"""Savepoints from Dagster: taken, told of, restored, forked and dropped by jobs of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, flights, pipeline
from platform_assets.keys import log_key
from platform_assets.pipeline.savepoints import Verb, savepoint_step
from streaming import drain
from streaming.lake.lake import Lake
from streaming.log.batches import head
from streaming.operations.savepoint import savepoints
from streaming.operators.progress import generation_of
from streaming.tables import delta
from tests.support.departures import FIRST, SECOND
from tests.support.feeds import land

pytestmark = pytest.mark.usefixtures("spark")


def test_a_savepoint_is_taken_restored_forked_and_dropped_by_jobs_that_tell_what_it_keeps(
    platform: dg.Definitions, instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    def run(verb: Verb, **config: object) -> dict[str, Any]:
        job = platform.resolve_job_def(f"flights_{verb}")
        run_config = {"ops": {savepoint_step(pipeline, verb): {"config": config}}}
        done = job.execute_in_process(run_config=run_config, instance=instance)
        (output,) = [event.step_output_data for event in done.all_events if event.is_successful_output]
        return {name: entry.value for name, entry in output.metadata.items()}

    land(flights.source.location(lake), FIRST)
    drain(spark, lake, pipeline)
    metadata = run("savepoint", name="early")
    (record,) = metadata["savepoints"].records
    assert (metadata["savepoint"], record.data["name"], record.data["batches"]) == (
        "early",
        "early",
        "batch 0 of flights",
    )
    assert (
        record.data["age_seconds"] >= 0 and record.data["bytes"] > 0 and "flights/log at version" in record.data["pins"]
    )
    observed = instance.fetch_observations(log_key(flights), limit=1).records[0].event_log_entry.asset_observation
    assert observed is not None
    table = observed.metadata["savepoints"]
    assert isinstance(table, dg.TableMetadataValue) and table.records[0].data["name"] == "early"

    land(flights.source.location(lake), SECOND)
    drain(spark, lake, pipeline)
    assert run("restore", name="early")["from"] == "batch 0 of flights"
    assert generation_of(delta.open_table(lake.table(departures_by_origin))) == 1
    there = Lake(str(tmp_path / "fork"))
    assert run("fork", to=there.root)["from"] == "batch 1 of flights"
    forked = head(there, flights)
    assert forked is not None and forked.number == 1
    assert run("restore", name="early", to=str(tmp_path / "early"))["lake"] == str(tmp_path / "early")

    assert run("savepoint", name="early", drop=True)["savepoints"].records == []
    assert savepoints(lake, pipeline) == []

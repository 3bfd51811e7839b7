"""The retraction job and commands: a preview by default, and what Dagster and people are told once it has written."""

from __future__ import annotations

import getpass
import json
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.keys import late_key, log_key
from platform_assets.pipeline.retraction import retraction_step
from streaming.lake.lake import Lake
from streaming.log import retractions
from streaming.tables import delta
from tests.platform_assets.conftest import Tidemark
from tests.support.departures import FIRST, SECOND
from tests.support.runs import run

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.long
def test_the_job_previews_unless_told_to_write_and_tells_of_late_rows(
    platform: dg.Definitions, instance: dg.DagsterInstance, spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline, FIRST, SECOND, end_of_input=True)
    before = delta.version_of(lake.log(pipeline.stream))
    report = execute(platform, instance, where="origin = 'EWR'")
    assert report["rows"] > 0 and "would wait for a correction" in report["preview"]
    assert delta.version_of(lake.log(pipeline.stream)) == before

    done = execute(platform, instance, where="origin = 'EWR'", preview=False, reason="a test", who="ada")
    (retraction,) = retractions(lake, pipeline)
    assert (done["rows"], done["retraction"]) == (report["rows"], retraction.id)
    assert (retraction.who, retraction.reason) == ("ada", "a test")
    event = instance.get_latest_materialization_event(log_key(pipeline.stream))
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["newest_batch"].value == retraction.id
    (record,) = instance.fetch_observations(late_key(departures_by_origin), limit=1).records
    observation = record.event_log_entry.asset_observation
    assert observation is not None and observation.metadata["dagster/row_count"].value == report["rows"]


def test_the_commands_foretell_take_back_list_and_undo(spark: SparkSession, lake: Lake, tidemark: Tidemark) -> None:
    run(spark, lake, pipeline, FIRST, SECOND, end_of_input=True)
    code, text = tidemark("retract flights --where \"origin = 'EWR'\" --preview")
    assert code == 0 and "would be taken back. Nothing was written." in text
    assert "first results stay, and are due for a correction: 2013-01-01" in text
    assert retractions(lake, pipeline) == []
    code, text = tidemark("retract flights --where \"origin = 'EWR'\"")
    assert code == 1 and "Add --reason" in text

    code, text = tidemark("retract flights --where \"origin = 'EWR'\" --reason 'a test' --who ada --json")
    (told,) = json.loads(text)["retractions"]
    (retraction,) = retractions(lake, pipeline)
    assert code == 0 and (told["id"], told["who"], told["reason"]) == (retraction.id, "ada", "a test")
    code, text = tidemark("retract flights --where \"origin = 'EWR'\" --reason again")
    assert code == 0 and "No row of flights that counts is meant." in text
    code, text = tidemark(f"retract flights --undo {retraction.id} --reason 'it was none'")
    assert code == 0 and f"those of retraction {retraction.id}" in text and "Next: tidemark run flights" in text
    code, text = tidemark("retractions flights")
    assert code == 0 and "ada" in text and f"undoes {retraction.id}" in text and "it was none" in text
    code, text = tidemark("show flights retractions --columns id,who,where,undoes,reason --csv")
    assert code == 0 and text == (
        f"id,who,where,undoes,reason {retraction.id},ada,origin = 'EWR',,a test "
        f"{retraction.id + 1},{getpass.getuser()},,{retraction.id},it was none"
    )


def execute(platform: dg.Definitions, instance: dg.DagsterInstance, **config: Any) -> dict[str, Any]:
    ops = {retraction_step(pipeline): {"config": config}}
    done = platform.resolve_job_def("flights_retraction").execute_in_process(run_config={"ops": ops}, instance=instance)
    assert done.success
    outputs = [event for event in done.all_events if event.is_successful_output]
    return {name: entry.value for name, entry in outputs[0].step_output_data.metadata.items()}

"""What Dagster makes of a pipeline of several streams, with an operator that is no view."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from docs.examples import clicks
from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as rooms
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from platform_assets.tags import LAYER_TAG
from streaming import agg
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.sources.files import Files
from streaming.windows.window import Tumbling
from tests.support.feeds import land_all, readings
from tests.support.tally import Tally

yards = replace(rooms, name="yards", source=Files("landing/yards"))
by_yard = Windowed("by_yard", yards, Tumbling("20 seconds"), {"readings": agg.count()}, by=("id",))
house = Pipeline(
    name="house", streams=(rooms, yards), operators=(count_by_sensor, by_yard, Tally("tally", (rooms, yards)))
)


@pytest.mark.long
def test_each_stream_and_each_operator_is_an_asset_and_one_drain_brings_them_up_to_date(
    spark: SparkSession, lake: Lake
) -> None:
    land_all(lake, rooms, readings("a@1, a@12, a@30"))
    land_all(lake, yards, readings("y@3, y@50"))
    definitions = dg.Definitions.merge(
        pipeline_definitions(house),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    tally = dg.AssetKey(["readings", "tally"])
    assert graph.get(tally).parent_keys == {dg.AssetKey(["readings", "log"]), dg.AssetKey(["yards", "log"])}
    # What is never corrected is current as it is, and what an operator does not tell of its columns is left out.
    assert graph.get(tally).tags[LAYER_TAG] == "results"
    assert "dagster/column_schema" not in graph.get(tally).metadata
    assert dg.AssetKey(["readings", "tally_current"]) not in graph.get_all_asset_keys()
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == {"house"}

    with dg.DagsterInstance.ephemeral() as instance:
        result = definitions.resolve_job_def("house_drain").execute_in_process(instance=instance)
        assert result.success
        rows = {
            "/".join(event.asset_key.path): event.materialization.metadata["dagster/row_count"].value
            for event in result.get_asset_materialization_events()
            if event.asset_key is not None
        }
    assert rows == {
        "readings/log": 3,
        "readings/rejected": 0,
        "readings/count_by_sensor": 2,
        "readings/count_by_sensor_current": 2,
        "readings/count_by_sensor_late": 0,
        "readings/tally": 2,
        "yards/log": 2,
        "yards/rejected": 0,
        "yards/by_yard": 1,
        "yards/by_yard_current": 1,
        "yards/by_yard_late": 0,
    }


def test_a_join_is_an_asset_below_both_logs_and_what_is_current_of_it_below_its_tables() -> None:
    resources = dg.Definitions(resources=default_resources("nowhere"))
    graph = dg.Definitions.merge(pipeline_definitions(clicks.pipeline), resources).resolve_asset_graph()
    logs = {dg.AssetKey(["clicks", "log"]), dg.AssetKey(["ads", "log"])}
    tables = {dg.AssetKey(["clicks", f"campaign_clicks{suffix}"]) for suffix in ("", "_unmatched")}
    assert {key: graph.get(key).parent_keys for key in tables} == dict.fromkeys(tables, logs)
    assert graph.get(dg.AssetKey(["clicks", "campaign_clicks_current"])).parent_keys == tables
    lineage = graph.get(dg.AssetKey(["clicks", "campaign_clicks"])).metadata["dagster/column_lineage"].deps_by_column
    assert {(dep.asset_key, dep.column_name) for dep in lineage["ad_id"]} == {(key, "ad_id") for key in logs}

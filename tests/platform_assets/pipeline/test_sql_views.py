"""What Dagster and the command line make of SQL views: assets with their lineage, run after what they read."""

from __future__ import annotations

import dagster as dg
from pyspark.sql import SparkSession

from docs.examples.customers import customer_history, customers
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming import Pipeline, View
from streaming.lake.lake import Lake
from tests.support.feeds import land_all

IN_CITIES = View(
    "in_cities", "select city, count(*) as customers from customers group by city", of=(customers,), key=("city",)
)
IN_SEGMENTS = View(
    "in_segments",
    "select segment, count(*) as intervals, max(valid_from) as newest from customer_history group by segment",
    of=(customer_history,),
    key=("segment",),
)
pipeline = Pipeline(name="customers", streams=(customers,), operators=(IN_SEGMENTS, customer_history, IN_CITIES))


def test_a_view_is_an_asset_that_follows_from_logs_and_from_what_is_current(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    platform = dg.Definitions.merge(
        pipeline_definitions(pipeline),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = platform.resolve_asset_graph()
    changes, history = (dg.AssetKey(["customers", name]) for name in ("changes", "customer_history_current"))
    assert graph.get(dg.AssetKey(["customers", "in_cities"])).parent_keys == {changes}
    assert graph.get(dg.AssetKey(["customers", "in_segments"])).parent_keys == {history}

    segments = (("new", 1), ("gold", 5), ("silver", 3))
    revisions = [
        {"id": 1, "version": number, "changed_at": f"2026-03-0{day}T09:00:00Z", "segment": segment, "city": "Bonn"}
        for number, (segment, day) in enumerate(segments, 1)
    ]
    land_all(lake, customers, revisions)
    assert platform.resolve_job_def("customers_drain").execute_in_process(instance=instance).success
    for name, rows in (("in_cities", 1), ("in_segments", 3)):
        event = instance.get_latest_materialization_event(dg.AssetKey(["customers", f"{name}_current"]))
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.metadata["dagster/row_count"].value == rows

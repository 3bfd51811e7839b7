"""What Dagster and `tidemark status` make of selections: assets, and what each filter let through."""

from __future__ import annotations

import json

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from docs.examples.people import adults, people
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming.declare.delivery import Delivery
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from streaming.sinks.files import JsonLines
from tests.platform_assets.conftest import Typed
from tests.support.feeds import land_all

OUT = Delivery("out", adults, JsonLines("out"), output="records", select=("person",))


def test_each_output_is_an_asset_with_what_its_filter_did_which_status_tells_as_well(
    spark: SparkSession,
    lake: Lake,
    instance: dg.DagsterInstance,
    typed: Typed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    platform = dg.Definitions.merge(
        pipeline_definitions(Pipeline(people, (adults,), deliveries=(OUT,))),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = platform.resolve_asset_graph()
    log = dg.AssetKey(["people", "log"])
    below = {key.path[-1] for key in graph.get_all_asset_keys() if graph.get(key).parent_keys == {log}}
    assert {"adults", "adults_records", "adults_keyed"} <= below
    assert graph.get(dg.AssetKey(["people", "out"])).parent_keys == {dg.AssetKey(["people", "adults_records"])}

    land_all(lake, people, [{"name": name, "age": age} for name, age in (("A", 17), ("B", 18), ("C", 23))])
    assert platform.resolve_job_def("people_drain").execute_in_process(instance=instance).success

    def told(table: str) -> dict[str, object]:
        event = instance.get_latest_materialization_event(dg.AssetKey(["people", table]))
        assert event is not None and event.asset_materialization is not None
        return {name: value.value for name, value in event.asset_materialization.metadata.items()}

    counts = {"rows_in": 3, "kept": 1, "removed": 2}
    assert counts.items() <= told("adults").items()
    assert told("adults")["dagster/row_count"] == 1
    assert (told("adults_records")["dagster/row_count"], "removed" in told("adults_records")) == (3, False)
    assert told("out")["delivered_rows"] == 3

    monkeypatch.setenv("TIDEMARK_PIPELINES", "docs.examples")
    code, out, _ = typed("status people --json")
    assert (code, json.loads(out)["filters"]) == (0, [{"pipeline": "people", "table": "adults", **counts}])
    assert "people: filter of adults: 3 rows in, 1 kept, 2 removed" in typed("status people")[1]

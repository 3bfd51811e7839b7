"""What Dagster and the command line make of histories: assets with their lineage, and what a late change did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from docs.examples.customers import customers, pipeline
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming.lake.lake import Lake
from tests.platform_assets.conftest import Typed
from tests.support.feeds import land_all


def last(instance: dg.DagsterInstance, table: str) -> Mapping[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey(["customers", table]))
    assert event is not None and event.asset_materialization is not None
    return event.asset_materialization.metadata


@pytest.mark.long
def test_a_history_is_an_asset_whose_current_intervals_follow_from_the_log(
    spark: SparkSession,
    lake: Lake,
    instance: dg.DagsterInstance,
    typed: Typed,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    platform = dg.Definitions.merge(
        pipeline_definitions(pipeline),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = platform.resolve_asset_graph()
    own, current = (dg.AssetKey(["customers", f"customer_history{suffix}"]) for suffix in ("", "_current"))
    assert own in graph.get(current).parent_keys
    assert graph.get(own).parent_keys <= {dg.AssetKey(["customers", name]) for name in ("log", "changes")}

    rows = [
        {"id": 1, "version": 1, "changed_at": "2026-03-01T09:00:00Z", "segment": "new", "city": "Bonn"},
        {"id": 1, "version": 3, "changed_at": "2026-03-05T09:00:00Z", "segment": "gold", "city": "Bonn"},
        {"id": 1, "version": 2, "changed_at": "2026-03-03T09:00:00Z", "segment": "silver", "city": "Bonn"},
    ]
    for each in rows:
        land_all(lake, customers, [each])
        assert platform.resolve_job_def("customers_drain").execute_in_process(instance=instance).success
    event = instance.get_latest_materialization_event(current)
    assert event is not None and event.asset_materialization is not None
    assert event.asset_materialization.metadata["dagster/row_count"].value == 3
    schema = event.asset_materialization.metadata["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchemaMetadataValue)
    assert {"segment", "valid_from", "valid_to"} <= {column.name for column in schema.schema.columns}

    # The third revision has a smaller version than what stands: it came, and changes nothing but the history.
    came, changes = (last(instance, "log"), last(instance, "changes"))
    assert (came["new_rows"].value, changes["new_rows"].value) == (1, 0)

    monkeypatch.setenv("TIDEMARK_PIPELINES", "docs.examples")
    code, out, _ = typed(f"show {pipeline.name} current --json")
    assert code == 0, out
    rows = [json.loads(line) for line in out.splitlines()]
    shown = [(each["segment"], each["valid_to"] is None) for each in rows]
    assert shown == [("new", False), ("silver", False), ("gold", True)]
    code, out, _ = typed(f"audit {pipeline.name}")
    assert code == 0 and "every law holds" in out
    code, out, _ = typed(f"audit {pipeline.name} --json")
    compared = [finding["compared"] for finding in json.loads(out)["findings"] if finding["law"] == "published"]
    assert compared[0] == "intervals that were added and not taken back = rows of customer_history_current"

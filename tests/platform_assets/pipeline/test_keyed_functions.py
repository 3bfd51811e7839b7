"""What Dagster makes of a pipeline with keyed functions."""

from __future__ import annotations

import dagster as dg

from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming.declare.pipeline import Pipeline
from tests.streaming.keyed.functions import readings, rises, sorted_out


def test_results_and_side_outputs_are_assets_below_the_log_and_state_is_none() -> None:
    definitions = dg.Definitions.merge(
        pipeline_definitions(Pipeline(readings, (sorted_out, rises))),
        dg.Definitions(resources=default_resources("/lake"), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    log = dg.AssetKey(["readings", "log"])
    below = {key.path[-1] for key in graph.get_all_asset_keys() if graph.get(key).parent_keys == {log}}
    assert {"sorted_out", "sorted_out_negative", "sorted_out_failed", "rises"} <= below
    assert not any(name.endswith("_state") for name in below)

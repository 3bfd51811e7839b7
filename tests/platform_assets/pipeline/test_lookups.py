"""What Dagster makes of a pipeline with lookups."""

from __future__ import annotations

import dagster as dg

from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming import Delivery, Enriched, JsonLines, Pipeline
from tests.streaming.keyed.connected import numbers
from tests.support import lookups


def test_answers_and_failures_are_assets_below_the_log_and_what_waits_is_none() -> None:
    asked = Enriched("asked", numbers, lookups.after_a_while, {"square": "bigint"}, select=("id",))
    alerts = Delivery("alerts", asked, JsonLines("alerts"), output="failed")
    definitions = dg.Definitions.merge(
        pipeline_definitions(Pipeline(numbers, (asked,), deliveries=(alerts,))),
        dg.Definitions(resources=default_resources("/lake"), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    log, answers, failed, alerted = (
        dg.AssetKey([numbers.name, name]) for name in ("log", "asked", "asked_failed", "alerts")
    )
    assert [graph.get(key).parent_keys for key in (answers, failed)] == [{log}] * 2
    assert graph.get(alerted).parent_keys == {failed}
    assert not any(key.path[-1].endswith("_pending") for key in graph.get_all_asset_keys())

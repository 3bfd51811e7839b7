"""What Dagster is told of deliveries: batch, rows, dead letters, and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from platform_assets import keys
from streaming import Lake, Pipeline
from streaming.base import utc_now
from streaming.deliveries import DeliveryRuntime


def report_deliveries(
    instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline, waiting: Mapping[str, str | None]
) -> None:
    """A materialization for each delivery that has begun; one whose target is away is observed, with the reason.

    `waiting`: why a delivery does not arrive, by its name.
    """
    for delivery in pipeline.deliveries:
        key = keys.delivery_key(delivery)
        metadata = delivery_metadata(DeliveryRuntime(delivery, lake, utc_now))
        why = waiting.get(delivery.name)
        if why:
            told = {**metadata, "waiting": why}
            instance.report_runless_asset_event(dg.AssetObservation(key, metadata=told))
        elif metadata:
            instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata))


def delivery_metadata(runtime: DeliveryRuntime) -> dict[str, Any]:
    """How it stands, from its tables alone; nothing before it has begun."""
    if runtime.ledger.read() is None:
        return {}
    standing = runtime.standing()
    return {
        "newest_batch": standing.delivered,
        "generation": standing.generation,
        "delivered_rows": standing.rows - standing.dead,
        "dead_letters": standing.dead,
        "units_behind": standing.behind,
    }

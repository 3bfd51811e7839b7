"""Deliveries as assets: what arrives in a target is told by whoever delivers, a drain or a running stream."""

from __future__ import annotations

import dagster as dg

from platform_assets import keys
from platform_assets.specs import asset_spec
from streaming import Delivery, Pipeline
from streaming.declare import Operator


def delivery_specs(pipeline: Pipeline) -> list[dg.AssetSpec]:
    """One asset for each delivery, of its target's kind, behind what it reads."""
    return [_spec(pipeline, delivery) for delivery in pipeline.deliveries]


def _spec(pipeline: Pipeline, delivery: Delivery) -> dg.AssetSpec:
    about = f"{delivery.description} " if delivery.description else ""
    spec = asset_spec(
        pipeline,
        keys.delivery_key(delivery),
        "deliveries",
        f"{about}{str(delivery.what).capitalize()} of {delivery.of.name}, {delivery.guarantee}.",
        {delivery.to.kind},
        _read_by(delivery),
    )
    return spec.merge_attributes(metadata={"target": delivery.to.address, "guarantee": str(delivery.guarantee)})


def _read_by(delivery: Delivery) -> list[dg.AssetKey]:
    if delivery.what == "current" and isinstance(delivery.of, Operator):
        return keys.current_keys(delivery.of)
    return [keys.delivered_table_key(delivery)]

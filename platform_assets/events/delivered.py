"""Events on deliveries for Dagster: batch, rows, dead letters, and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dagster as dg

from platform_assets import keys
from platform_assets.events.evaluations import evaluations_of, last_evaluation
from platform_assets.partitions import add_days
from streaming import Delivery, Lake, Pipeline
from streaming.base import utc_now
from streaming.deliveries import DeliveryRuntime, days_to_deliver, why_not_by_day

NO_DEAD_LETTERS = "no_dead_letters"
"""The name of the check of what a target refused."""


def report_deliveries(
    instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline, waiting: Mapping[str, str | None]
) -> None:
    """A materialization for each delivery that has begun; one whose target is away is observed, with the reason.

    Days that a delivery can repeat become partitions, which count as materialized.

    `waiting`: why a delivery does not arrive, by its name.
    """
    for delivery in pipeline.deliveries:
        key = keys.delivery_key(delivery)
        metadata = delivery_metadata(DeliveryRuntime(delivery, lake, utc_now))
        why = waiting.get(delivery.name)
        if why:
            if metadata:
                _report_dead_letters(instance, key, metadata["dead_letters"])
            observation = dg.AssetObservation(key, metadata={**metadata, "waiting": why})
            instance.report_runless_asset_event(observation)
        elif metadata:
            report_delivery(instance, lake, delivery, metadata)


def report_delivery(instance: dg.DagsterInstance, lake: Lake, delivery: Delivery, metadata: Mapping[str, Any]) -> None:
    """A materialization of a delivery that has begun, of each day that it can repeat and is new, and its dead letters.

    `metadata`: as `delivery_metadata` has it.
    """
    key = keys.delivery_key(delivery)
    _report_dead_letters(instance, key, metadata["dead_letters"])
    instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata))
    if not why_not_by_day(delivery):
        for day in add_days(instance, delivery, days_to_deliver(lake, delivery)):
            instance.report_runless_asset_event(dg.AssetMaterialization(key, partition=day, metadata=metadata))


def dead_letters_result(key: dg.AssetKey, dead: int) -> dg.AssetCheckResult:
    """The check of the dead letters of a delivery, with their number."""
    return dg.AssetCheckResult(
        asset_key=key,
        check_name=NO_DEAD_LETTERS,
        passed=dead == 0,
        severity=dg.AssetCheckSeverity.WARN,
        description="none" if dead == 0 else f"{dead:,} refused; `tidemark redeliver` sends them again after a fix",
        metadata={"dead_letters": dead},
    )


def _report_dead_letters(instance: dg.DagsterInstance, key: dg.AssetKey, dead: int) -> None:
    """An event where the number is another one than was told last, or none was told."""
    last_check = last_evaluation(instance, dg.AssetCheckKey(key, NO_DEAD_LETTERS))
    if last_check is not None and last_check.metadata["dead_letters"].value == dead:
        return
    for evaluation in evaluations_of([dead_letters_result(key, dead)]):
        instance.report_runless_asset_event(evaluation)


def delivery_metadata(runtime: DeliveryRuntime) -> dict[str, Any]:
    """The state of a delivery, from its tables alone; nothing before it has begun."""
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

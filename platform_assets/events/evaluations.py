"""What was said of an asset check last."""

from __future__ import annotations

import dagster as dg


def last_evaluation(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The newest evaluation of the check; None where there was none, or where it could not be executed."""
    records = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    event = records[0].event if records else None
    evaluation = None if event is None or event.dagster_event is None else event.dagster_event.event_specific_data
    return evaluation if isinstance(evaluation, dg.AssetCheckEvaluation) else None

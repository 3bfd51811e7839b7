"""Evaluations of asset checks: what was said last, and results as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import dagster as dg


def last_evaluation(instance: dg.DagsterInstance, check: dg.AssetCheckKey) -> dg.AssetCheckEvaluation | None:
    """The newest evaluation of the check; None where there was none, or where it could not be executed."""
    records = instance.event_log_storage.get_asset_check_execution_history(check, limit=1)
    event = records[0].event if records else None
    evaluation = None if event is None or event.dagster_event is None else event.dagster_event.event_specific_data
    return evaluation if isinstance(evaluation, dg.AssetCheckEvaluation) else None


def evaluations_of(results: Iterable[dg.AssetCheckResult]) -> Iterator[dg.AssetCheckEvaluation]:
    """The results as events, for a step that is no asset check."""
    for result in results:
        assert result.asset_key is not None and result.check_name is not None
        yield dg.AssetCheckEvaluation(
            asset_key=result.asset_key,
            check_name=result.check_name,
            passed=result.passed,
            severity=result.severity,
            description=result.description,
            metadata=result.metadata,
        )

"""The backlog of corrections by what Dagster knows: counts of late rows, and what was settled, as events of assets."""

from __future__ import annotations

from typing import Any

import dagster as dg

from platform_assets.keys import late_key
from streaming import Lake, Pipeline
from streaming.declare import Operator
from streaming.operators import Backlog, LateCount, Waiting, settled_at

_LATE = "backlog"
_SETTLED = "settled_through"
_LOOKED_BACK = 20


def backlog_metadata(count: LateCount) -> dict[str, Any]:
    """A count of late rows as metadata, in the words that `waiting` reads."""
    return {_LATE: count.to_json()}


def backlog_as_counted(instance: dg.DagsterInstance, operator: Operator) -> dict[str, Any]:
    """The newest count of late pairs as metadata, for an event that counts none; nothing where there is no count."""
    counted = _newest_count(instance, operator)
    return {} if counted is None else backlog_metadata(counted)


def settled_now(lake: Lake, operator: Operator) -> dict[str, Any]:
    """That every late row up to the newest batches is corrected, as metadata; nothing while a log is empty.

    The batch of each log by stream, in the words that `settled_through` reads.
    """
    numbers = settled_at(lake, operator)
    return {} if numbers is None else {_SETTLED: dg.MetadataValue.json(numbers)}


def settled_through(instance: dg.DagsterInstance, pipeline: Pipeline) -> dict[str, int] | None:
    """The newest batch of each log, by stream, up to which everything is known to be corrected; None where it is not.

    A log that nothing corrected reads is not among them. A stream that runs brings late rows all the time, so that its
    newest batch is hardly ever settled.
    """
    through: dict[str, int] = {}
    for operator in pipeline.backfilled:
        settled = _settled(instance, operator)
        if settled is None:
            return None
        through |= {name: min(batch, through.get(name, batch)) for name, batch in settled.items()}
    return through


def waiting(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> Waiting | None:
    """The corrections that the operator needs, as far as late rows tell, or None when it needs none."""
    return _backlog(instance, lake, operator).waiting()


def may_need_corrections(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> bool:
    """True if a plan could find a day to correct; False is certain, and costs no Spark to know."""
    return _backlog(instance, lake, operator).may_need_corrections()


def _backlog(instance: dg.DagsterInstance, lake: Lake, operator: Operator) -> Backlog:
    return Backlog(lake, operator, _newest_count(instance, operator), _settled(instance, operator))


def _settled(instance: dg.DagsterInstance, operator: Operator) -> dict[str, int] | None:
    """The batch of each log up to which the days of an operator were planned and corrected last, by stream."""
    records = instance.fetch_observations(late_key(operator), limit=_LOOKED_BACK).records
    events = (record.event_log_entry.asset_observation for record in records)
    positions = (event.metadata[_SETTLED].value for event in events if event is not None and _SETTLED in event.metadata)
    return next((value for value in positions if isinstance(value, dict)), None)


def _newest_count(instance: dg.DagsterInstance, operator: Operator) -> LateCount | None:
    """Drains materialize the count, corrections observe it."""
    records = [
        *instance.fetch_materializations(late_key(operator), limit=1).records,
        *instance.fetch_observations(late_key(operator), limit=1).records,
    ]
    for record in sorted(records, key=lambda record: record.storage_id, reverse=True):
        event = record.asset_materialization or record.event_log_entry.asset_observation
        entry = None if event is None else event.metadata.get(_LATE)
        if isinstance(entry, dg.JsonMetadataValue) and isinstance(entry.value, dict):
            return LateCount.from_json(entry.value)
    return None

"""Events on a running stream for Dagster: one per table now and then, and each alert as it changes."""

from __future__ import annotations

import logging
from datetime import date, datetime, timedelta
from typing import Any

import dagster as dg

from platform_assets import keys
from platform_assets.events.alerts import report_alerts
from platform_assets.events.delivered import report_deliveries
from platform_assets.events.metadata import counted, filter_metadata, position_metadata, table_metadata
from platform_assets.lineage import lineage_of_log, lineage_of_table
from streaming import Lake, Pipeline, Stream
from streaming.base import utc_now
from streaming.declare import CURRENT, Operator, TableSpec
from streaming.service import Overview, QueryStatus, SupervisorStatus, ingest_query, is_fresh, lateness_texts, look
from streaming.sources import backlog_numbers

REPORTED_EVERY = timedelta(minutes=5)
"""An asset's page loads a week of events, so they are few: 288 a day and table, and two for a change of state."""

_CHANGES_A_DAY = 6
_SETTLED_AFTER = timedelta(minutes=1)
_log = logging.getLogger("tidemark")


class StreamEvents:
    """Reports the tables of a pipeline as assets while its stream runs."""

    def __init__(self, instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline) -> None:
        self._instance = instance
        self._lake = lake
        self._pipeline = pipeline
        self._reported: datetime | None = None
        self._changes: tuple[date, int] | None = None
        self._due: list[datetime] = []

    def on_state(self, status: SupervisorStatus) -> None:
        """A change of state is told at once and again a minute later, as long as there are few of them in a day."""
        now = utc_now()
        if status.state in ("running", "failed", "stopped") and self._may_tell(now):
            # Of a process that has just begun there is a state to tell, and no rates yet.
            self._due = [now, now + _SETTLED_AFTER]
        self.look(now)

    def look(self, now: datetime) -> None:
        """Report, if it is time to."""
        reported_lately = self._reported is not None and now - self._reported < REPORTED_EVERY
        if reported_lately and not any(due <= now for due in self._due):
            return
        self._reported, self._due = now, [due for due in self._due if due > now]
        try:
            self.report(look(self._lake, self._pipeline), now)
        except Exception:
            # Dagster's storage being away is no reason for a stream to end; the next report says what this one would.
            _log.exception("%s: its state could not be reported to Dagster", self._pipeline.name)

    def report(self, overview: Overview, now: datetime) -> None:
        """One event for each table of the pipeline, and the alerts."""
        state = _state_metadata(overview, now)
        pipeline = self._pipeline
        for log in pipeline.logs:
            of_log = table_metadata(self._lake.log(log), lineage_of_log(log))
            metadata = of_log | {**state, **_log_metadata(overview, log)}
            self._reported_as(keys.log_key(log), metadata, is_fresh(overview, log, now))
        for stream in pipeline.streams:
            self._observed(keys.source_key(stream), {**state, **_waiting_metadata(overview)})
            self._observed(keys.rejected_key(stream), {**state, **_rejected_metadata(overview, stream)})
        for operator in pipeline.operators:
            for table in operator.streamed:
                self._report_table(operator, table, state, overview, now)
        queries = {} if overview.process is None else overview.process.queries
        waiting = {name: query.paused or query.waiting for name, query in queries.items()}
        report_deliveries(self._instance, self._lake, pipeline, waiting)
        report_alerts(self._instance, overview, now)

    def _report_table(
        self, operator: Operator, table: TableSpec, state: dict[str, Any], overview: Overview, now: datetime
    ) -> None:
        metadata = {**state, **filter_metadata(self._lake, operator, table.suffix)}
        if not table.suffix:
            metadata |= _operator_metadata(overview, operator, now) | position_metadata(self._lake, operator)
        told = {keys.table_key(operator, table.suffix): table.suffix}
        if operator.overlaid and not table.suffix:
            told |= dict.fromkeys(keys.current_keys(operator), CURRENT)
        tables = {
            key: table_metadata(self._lake.table(operator, suffix), lineage_of_table(operator, suffix))
            for key, suffix in told.items()
        }
        for key, of_table in tables.items():
            fresh = bool(table.suffix) or is_fresh(overview, operator, now)
            self._reported_as(key, of_table | metadata if fresh else metadata, fresh)

    def _may_tell(self, now: datetime) -> bool:
        day, count = self._changes or (now.date(), 0)
        count = count + 1 if day == now.date() else 1
        self._changes = (now.date(), count)
        return count <= _CHANGES_A_DAY

    def _reported_as(self, key: dg.AssetKey, metadata: dict[str, Any], fresh: bool) -> None:
        """Report the table of `key`, as an observation where it is not fresh: a materialization would call it so."""
        if fresh:
            self._materialized(key, metadata)
        else:
            self._observed(key, metadata)

    def _materialized(self, key: dg.AssetKey, metadata: dict[str, Any]) -> None:
        self._instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata=metadata))

    def _observed(self, key: dg.AssetKey, metadata: dict[str, Any]) -> None:
        self._instance.report_runless_asset_event(dg.AssetObservation(key, metadata=metadata))


def _query(overview: Overview, operator: Operator) -> QueryStatus | None:
    return None if overview.process is None else overview.process.queries.get(operator.name)


def _state_metadata(overview: Overview, now: datetime) -> dict[str, Any]:
    metadata: dict[str, Any] = {"state": overview.state, "restarts": overview.restarts}
    if overview.why:
        metadata["why"] = overview.why
    if overview.failures:
        last = overview.failures[-1]
        metadata["last_failure"] = last.error
        metadata["last_failure_at"] = dg.MetadataValue.timestamp(last.at)
        if last.batch:
            metadata["failed_batch"] = last.batch
            metadata["failed_origins"] = last.origins or "unknown"
    late = [*lateness_texts(overview, now)]
    if late:
        metadata["late"] = "; ".join(late)
    return metadata | _watermark_metadata(None if overview.process is None else overview.process.watermark, now)


def _log_metadata(overview: Overview, stream: Stream) -> dict[str, Any]:
    process = overview.process
    if process is None:
        return {}
    query = process.queries.get(ingest_query(overview.pipeline, stream), QueryStatus())
    p50, p95, p99 = process.latency or (None, None, None)
    numbers = {
        "input_rows_per_second": process.input_rate,
        "processing_rows_per_second": process.processing_rate,
        "newest_batch": process.newest_batch,
        "rows_since_start": query.rows,
        "late_since_start": process.late,
        "batch_seconds": query.last_seconds,
        **backlog_numbers(process.backlog),
        "catch_up_seconds": process.catch_up_seconds,
        "latency_p50_seconds": p50,
        "latency_p95_seconds": p95,
        "latency_p99_seconds": p99,
        "memory_megabytes": None if process.memory_bytes is None else process.memory_bytes / 2**20,
    }
    partitions = {name: items for backlog in process.backlog for name, items in backlog.partitions.items()}
    by_partition = {"backlog_by_partition": dg.MetadataValue.json(partitions)} if partitions else {}
    return {**_without_nulls(numbers), **by_partition}


def _waiting_metadata(overview: Overview) -> dict[str, Any]:
    """The backlog as metadata; where there are several streams, that in all their sources, as the process counts it."""
    if overview.process is None:
        return {}
    numbers = backlog_numbers(overview.process.backlog)
    several = len(overview.pipeline.streams) > 1
    return {f"{name}_of_all_streams" if several else name: number for name, number in numbers.items()}


def _rejected_metadata(overview: Overview, stream: Stream) -> dict[str, Any]:
    if overview.process is None:
        return {}
    query = overview.process.queries.get(ingest_query(overview.pipeline, stream), QueryStatus())
    valid = query.rows - query.rejected
    return {
        "rejected_since_start": overview.process.rejected,
        "rejected_share": overview.process.rejected_share,
        "reasons_since_start": counted("rule", query.reasons),
        "warned_since_start": counted("rule", query.warned),
        **{f"warned_share_{rule}": rows / valid if valid else 0.0 for rule, rows in query.warned.items()},
    }


def _operator_metadata(overview: Overview, operator: Operator, now: datetime) -> dict[str, Any]:
    query = _query(overview, operator)
    if query is None:
        return {}
    numbers = {
        "batches_behind": query.behind,
        "windows_since_start": query.rows,
        "batch_seconds": query.last_seconds,
        "state_rows": query.state_rows,
        "state_megabytes": None if query.state_bytes is None else query.state_bytes / 2**20,
    }
    return _without_nulls(numbers) | _watermark_metadata(query.watermark, now)


def _watermark_metadata(watermark: datetime | None, now: datetime) -> dict[str, Any]:
    if watermark is None:
        return {}
    lag = (now - watermark).total_seconds()
    return {"watermark": dg.MetadataValue.timestamp(watermark), "watermark_lag_seconds": lag}


def _without_nulls(numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in numbers.items()
        if value is not None
    }

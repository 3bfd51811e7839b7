"""Events on tables that no run of Dagster has written: commands, streams and other machines leave commits behind.

An asset was told of the version that its newest materialization names. Where its table has a newer one, the asset is
told of that, once, with the batches that came between; no Spark is started, and no row is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from platform_assets import keys
from platform_assets.events.backlog import backlog_as_counted
from platform_assets.events.counts import rejected_numbers, rows_since
from platform_assets.events.delivered import delivery_metadata, report_delivery
from platform_assets.events.metadata import (
    filter_metadata,
    partitioned_metadata,
    place_metadata,
    position_metadata,
    table_metadata,
    watermark_metadata,
)
from platform_assets.events.sources import count_waiting, source_metadata
from platform_assets.lineage import lineage_metadata, lineage_of_log, lineage_of_rejected, lineage_of_table
from platform_assets.partitions import add_days, days_of
from platform_assets.reports.publication import read_publication
from platform_assets.reports.report import Report
from streaming import Lake, Pipeline, Stream
from streaming.base import DAY, utc_now
from streaming.declare import CORRECTIONS, CURRENT, FAILED, LATE, Operator
from streaming.deliveries import DeliveryRuntime
from streaming.log import Batch, read_batches
from streaming.operators import Corrected, runtime_of
from streaming.tables import delta, newest_commits

_VERSION, _PLACE, _NEWEST, _THROUGH = "delta_version", "dagster/uri", "newest_batch", "through_batch"
_OF_MAINTENANCE = ("OPTIMIZE", "VACUUM START", "VACUUM END")
_FROM_COMMITS = {"told_by": "commits"}
_BATCHES = 1_000
"""The new rows of a log are counted batch by batch where it is no further ahead of what was told."""


def untold_tables(
    instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline, reports: Iterable[Report] = ()
) -> list[dg.AssetKey]:
    """Tell the instance of each table of the pipeline, and of its `reports`, that has rows it was not told of.

    Returns the keys of what was told.
    """
    events = _Commits(instance, lake)
    for stream in pipeline.logs:
        events.log(stream)
    for operator in pipeline.operators:
        events.tables_of(operator)
    for delivery in pipeline.deliveries:
        metadata = delivery_metadata(DeliveryRuntime(delivery, lake, utc_now))
        last = events.last(keys.delivery_key(delivery))
        if any(last.get(name) != value for name, value in metadata.items() if name != "units_behind"):
            report_delivery(instance, lake, delivery, {**metadata, **_FROM_COMMITS})
            events.told.append(keys.delivery_key(delivery))
    for report in reports:
        events.sections(report)
    return events.told


class _Commits:
    """The commits of a pipeline's tables against what their assets were told last."""

    def __init__(self, instance: dg.DagsterInstance, lake: Lake) -> None:
        self._instance = instance
        self._lake = lake
        # Several assets of a log are counted from its commits, which are read once.
        self._read: dict[str, list[Batch]] = {}
        self.told: list[dg.AssetKey] = []

    def last(self, key: dg.AssetKey) -> Mapping[str, Any]:
        """The values that the asset was told last; none where it never was."""
        event = self._instance.get_latest_materialization_event(key)
        materialization = None if event is None else event.asset_materialization
        if materialization is None:
            return {}
        return {name: entry.value for name, entry in materialization.metadata.items()}

    def log(self, stream: Stream) -> None:
        """The event log; of one that keeps what comes also what waits in its source, and its rejected rows."""
        uri, key = self._lake.log(stream), keys.log_key(stream)
        if self._untold(key, uri) is not None:
            before = self.last(key)
            batches = watermark_metadata(self._lake, stream)
            since = before.get(_NEWEST, -1) if before.get(_PLACE) == uri else -1
            newest = batches.get(_NEWEST, -1)
            if since < newest <= since + _BATCHES:
                batches |= {"first_batch": since + 1, "new_rows": rows_since(self._lake, stream, since)}
            self._materialized(key, table_metadata(uri, lineage_of_log(stream)) | batches)
            if stream.revised:
                return
            waits = source_metadata(self._lake, stream, count_waiting(self._lake, stream))
            observation = dg.AssetObservation(keys.source_key(stream), metadata={**waits, **_FROM_COMMITS})
            self._instance.report_runless_asset_event(observation)
        if not stream.revised and self._is_behind(keys.rejected_key(stream), [stream]):
            numbers = rejected_numbers(self._batches_of(stream))
            self._materialized(
                keys.rejected_key(stream),
                {**place_metadata(uri), **lineage_metadata(lineage_of_rejected(stream)), **numbers},
            )

    def tables_of(self, operator: Operator) -> None:
        """The tables of an operator, the days of its corrections, and its reads of logs."""
        reached = _batches(runtime_of(operator, self._lake).through())
        changed = False
        for table in operator.streamed:
            key, uri = keys.table_key(operator, table.suffix), self._lake.table(operator, table.suffix)
            if self._untold(key, uri) is None:
                continue
            of_table = table_metadata(uri, lineage_of_table(operator, table.suffix))
            metadata = {**of_table, **filter_metadata(self._lake, operator, table.suffix), **reached}
            if not table.suffix:
                metadata |= position_metadata(self._lake, operator)
            self._materialized(key, metadata)
            changed = True
        if operator.corrected:
            changed = self._days_of(operator) or changed
        if operator.overlaid and delta.exists(self._lake.table(operator)):
            (current,) = keys.current_keys(operator)
            if changed or not self.last(current):
                lineage = lineage_of_table(operator, CURRENT)
                self._materialized(current, table_metadata(self._lake.table(operator, CURRENT), lineage) | reached)
        if operator.tells_late and self._is_behind(keys.late_key(operator), operator.reads):
            late = sum(
                (batch.late or {}).get(operator.name, 0) - batch.gone_late(operator.name)
                for stream in operator.reads
                for batch in self._batches_of(stream)
            )
            counted = {
                "dagster/row_count": late,
                **place_metadata(self._lake.log(operator.reads[0])),
                **lineage_metadata(lineage_of_table(operator, LATE)),
                **backlog_as_counted(self._instance, operator),
            }
            self._materialized(keys.late_key(operator), counted)
        if operator.tells_failed and self._is_behind(keys.failed_key(operator), operator.reads):
            place = place_metadata(self._lake.log(operator.reads[0]))
            self._materialized(
                keys.failed_key(operator), {**place, **lineage_metadata(lineage_of_table(operator, FAILED))}
            )

    def sections(self, report: Report) -> None:
        """The sections of a report, of the versions that are published."""
        publication = read_publication(self._lake, report.name)
        if publication is None:
            return
        for section in report.sections:
            key, uri = keys.report_key(section.table), self._lake.report(section.table)
            if self._untold(key, uri) is not None:
                pins = dg.MetadataValue.json(publication.pins.versions())
                at = dg.MetadataValue.timestamp(publication.published_at)
                self._materialized(key, {**table_metadata(uri), "pinned_versions": pins, "published_at": at})

    def _days_of(self, operator: Operator) -> bool:
        """Tell of each day that was corrected since; true where there is one."""
        key, uri = keys.corrections_key(operator), self._lake.table(operator, CORRECTIONS)
        table = self._untold(key, uri)
        if table is None:
            return False
        last = self.last(key)
        before = _at(uri, last[_VERSION]) if last.get(_PLACE) == uri and _VERSION in last else None
        rows = _rows_by_day(table)
        partitions = self._instance.get_dynamic_partitions(str(days_of(operator).name))
        corrected = {
            day: Corrected.of(operator, day, table) for day in sorted({*rows, *map(date.fromisoformat, partitions)})
        }
        changed = {
            day: done
            for day, done in corrected.items()
            if done.has_begun and (before is None or Corrected.of(operator, day, before) != done)
        }
        add_days(self._instance, operator, changed)
        for day, done in changed.items():
            counts = {"dagster/partition_row_count": rows.get(day, 0), **_batches(done.through)}
            metadata = {**partitioned_metadata(uri, lineage_of_table(operator, CORRECTIONS)), **counts}
            self._materialized(key, metadata, day.isoformat())
        return bool(changed)

    def _batches_of(self, stream: Stream) -> list[Batch]:
        if stream.name not in self._read:
            self._read[stream.name] = read_batches(self._lake, stream)
        return self._read[stream.name]

    def _untold(self, key: dg.AssetKey, uri: str) -> DeltaTable | None:
        """The table, where its asset was not told of its rows as they are; None where it was, or there is no table."""
        table = delta.open_table(uri)
        if table is None:
            return None
        last = self.last(key)
        version = last.get(_VERSION)
        if last.get(_PLACE) != uri or not isinstance(version, int) or version > table.version():
            return table
        lacking = table.version() - version
        for commit in newest_commits(table) if lacking else ():
            if commit["version"] <= version:
                return None
            if commit.get("operation") not in _OF_MAINTENANCE:
                return table
            lacking -= 1
        return table if lacking else None

    def _is_behind(self, key: dg.AssetKey, of: Iterable[Stream]) -> bool:
        """True where logs were told of now that a read follows, or the read never was though its logs are there."""
        logs = [keys.log_key(stream) for stream in of]
        if any(log in self.told for log in logs):
            return True
        return not self.last(key) and all(delta.exists(self._lake.log(stream)) for stream in of)

    def _materialized(self, key: dg.AssetKey, metadata: Mapping[str, Any], partition: str | None = None) -> None:
        event = dg.AssetMaterialization(key, partition=partition, metadata={**metadata, **_FROM_COMMITS})
        self._instance.report_runless_asset_event(event)
        self.told.append(key)


def _batches(through: Mapping[str, int]) -> dict[str, int]:
    """The batch of each log up to which something goes, as metadata."""
    return {_THROUGH if len(through) == 1 else f"{_THROUGH}_of_{name}": number for name, number in through.items()}


def _at(uri: str, version: int) -> DeltaTable | None:
    """The table at a version, or None where that is cleaned away."""
    try:
        return delta.open_table(uri, version)
    except DeltaError:
        return None


def _rows_by_day(table: DeltaTable) -> dict[date, int]:
    files = pa.table(table.get_add_actions(flatten=True))
    rows: dict[date, int] = {}
    for day, number in zip(files[f"partition.{DAY}"].to_pylist(), files["num_records"].to_pylist(), strict=True):
        rows[day] = rows.get(day, 0) + number
    return rows

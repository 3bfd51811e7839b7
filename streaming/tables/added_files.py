"""The Parquet files of one write, as a commit adds them to a table."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from streaming.base import DAY, MILLISECOND
from streaming.tables.storage import files_of

NO_DAY = "__HIVE_DEFAULT_PARTITION__"
"""The name of the folder of rows without a day."""


def added_files(
    table: DeltaTable, folder: str, statistics: Sequence[str]
) -> tuple[list[AddAction | RemoveAction], int]:
    """The files below `folder` of the table that hold rows, and how many rows those are.

    `statistics` names the columns whose bounds are kept.
    """
    files = files_of(table)
    selector = pa_fs.FileSelector(folder, recursive=True, allow_not_found=True)
    actions: list[AddAction | RemoveAction] = []
    total = 0
    for info in files.get_file_info(selector):
        if not info.path.endswith(".parquet"):
            continue
        with files.open_input_file(info.path) as handle:
            footer = pq.ParquetFile(handle).metadata
        if footer.num_rows == 0:
            continue
        day = info.path.partition(f"/{DAY}=")[2].partition("/")[0]
        total += footer.num_rows
        actions.append(
            AddAction(
                path=info.path,
                size=info.size,
                partition_values={DAY: None if day == NO_DAY else day} if day else {},
                modification_time=int(time.time() * 1000),
                data_change=True,
                stats=json.dumps(file_statistics(footer, statistics)),
            )
        )
    return actions, total


def file_statistics(footer: pq.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """Row count, and bounds and null counts of those of `columns` that the footer knows them of, in Delta's form."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    for position, name in enumerate(footer.schema.names):
        if name not in columns or footer.schema.column(position).path != name:
            continue
        per_group = [group.column(position).statistics for group in groups]
        if any(entry is None or not entry.has_null_count for entry in per_group):
            continue
        nulls[name] = sum(entry.null_count for entry in per_group)
        bounds = [entry for entry in per_group if entry.has_min_max]
        if bounds and len(bounds) == sum(entry.num_values > 0 for entry in per_group):
            try:
                span = (
                    _bound(min(entry.min for entry in bounds), round_up=False),
                    _bound(max(entry.max for entry in bounds), round_up=True),
                )
            except OverflowError:
                # Python knows the years 1 to 9999 only; a file without bounds is read, never skipped.
                continue
            if None not in span:
                least[name], greatest[name] = span
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bound(value: Any, *, round_up: bool) -> Any:
    """A bound in JSON; None where it would be another number there, or is of a type that Delta bounds in no file.

    Delta keeps instants with milliseconds only, so the upper bound is rounded up.
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Decimal | bytes):
        return None
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    instant = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if round_up and instant.microsecond % 1000:
        instant += MILLISECOND
    # strftime would write the year 1 as "1".
    return f"{instant.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"

"""The statistics of a Parquet file as Delta keeps them in its log, for skipping files that a query need not read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

import pyarrow.parquet as pq

from streaming.base import MILLISECOND


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

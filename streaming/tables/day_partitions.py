"""The days of which a table has partitions."""

from __future__ import annotations

from datetime import date

from deltalake import DeltaTable

from streaming.base import DAY
from streaming.tables.delta import open_table
from streaming.tables.storage import location


def days_of(uri: str, version: int | None = None) -> set[date]:
    """The days of which the table has partitions, at one `version` or the newest; none where there is no table."""
    table = open_table(uri, version)
    if table is None:
        return set()
    days = table.get_add_actions(flatten=True)[f"partition.{DAY}"].to_pylist()
    return {day for day in days if day is not None}


def forget_days(uri: str, before: date) -> None:
    """Take the partitions of the days `before` out of the table, in one commit; none where there are none."""
    if any(day < before for day in days_of(uri)):
        DeltaTable(location(uri)).delete(f"{DAY} < '{before.isoformat()}'")

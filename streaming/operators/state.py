"""State in tables: a step a second leaves tens of thousands of versions a day behind."""

from __future__ import annotations

from datetime import datetime, timedelta

from deltalake import DeltaTable

from streaming.tables import clean_up, location

_KEPT_FOR = timedelta(hours=1)


def clean_state(uri: str, now: datetime) -> None:
    """Remove the versions of a table of state that are older than an hour, with their files."""
    clean_up(DeltaTable(location(uri)), now - _KEPT_FOR)
    # An open table remembers the entries that it was read from.
    table, hours = DeltaTable(location(uri)), _KEPT_FOR // timedelta(hours=1)
    if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)

"""The history of tables removed: nothing that was in an old version can be read or brought back."""

from __future__ import annotations

from datetime import timedelta

from deltalake import DeltaTable

from streaming.base import utc_now
from streaming.tables import clean_up, delta, location, numbers_of


def forget_history(uri: str, erasure: str) -> int:
    """Delete every file that the newest version of the table does not need, and every older entry of its log.

    Returns how many data files went. What the table says of itself is said once more before, by the one entry that
    stays, because readers look for it there.
    """
    table = DeltaTable(location(uri))
    numbers = numbers_of(table)
    delta.note(uri, metadata={"erasure": erasure}, numbers=numbers)
    table = DeltaTable(location(uri))
    gone = table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    table = DeltaTable(location(uri))
    delta.note(uri, metadata={"erasure": erasure}, numbers=numbers)
    # Files have the time of their storage, and all entries before a checkpoint of this version are to go.
    clean_up(DeltaTable(location(uri)), utc_now() + timedelta(days=1))
    return len(gone)

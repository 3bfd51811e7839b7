"""The history of tables removed: nothing that was in an old version can be read or brought back."""

from __future__ import annotations

from datetime import timedelta

from deltalake import DeltaTable

from streaming.base import utc_now
from streaming.tables import clean_up, delta, location, numbers_of

_VACUUMS = ((0, False), (1, True))
"""Hours for which a file stays, and whether it goes also where no version has it.

Such a file may be of somebody who is about to commit it, such as maintenance; the proof reads what stays.
"""


def old_files(uri: str) -> int:
    """How many data files of the table `forget_history` would delete now."""
    table = DeltaTable(location(uri))
    return len({path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=True)})


def forget_history(uri: str, erasure: str) -> int:
    """Delete every file that only older versions of the table need, and every older entry of its log.

    Also what no version needs, an hour after it was written. Returns how many data files went. What the table says of
    itself is said once more before, by the one entry that stays, because readers look for it there.
    """
    table = DeltaTable(location(uri))
    numbers = numbers_of(table)
    delta.note(uri, metadata={"erasure": erasure}, numbers=numbers)
    table = DeltaTable(location(uri))
    gone = [path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=False)]
    table = DeltaTable(location(uri))
    delta.note(uri, metadata={"erasure": erasure}, numbers=numbers)
    # Files have the time of their storage, and all entries before a checkpoint of this version are to go.
    clean_up(DeltaTable(location(uri)), utc_now() + timedelta(days=1))
    return len(gone)


def _vacuum(table: DeltaTable, hours: int, full: bool, *, dry_run: bool) -> list[str]:
    return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=full)

"""Removes a person's rows and the files of old versions, and notes what went: no death makes the record forget any."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import timedelta

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.base import utc_now
from streaming.lake import Lake
from streaming.operations.erasure.record import COMMIT, Erasure, Removed
from streaming.tables import Split, clean_up, delta, numbers_of, take_out, to_be_taken

_VACUUMS = ((0, False), (1, True))
"""Hours for which a file stays, and whether it goes also where no version has it.

Such a file may be of somebody who is about to commit it, such as maintenance; the proof reads what stays.
"""


def taken_out(spark: SparkSession, lake: Lake, erasure: Erasure, table: str, split: Split) -> Erasure:
    """The record with what was taken out of a table."""
    uri = lake.path(table)
    wanted = to_be_taken(spark, uri, split)
    if not wanted.rows:
        return erasure
    number = secrets.randbits(48)
    erasure = erasure.begins(table, Removed(wanted.rows, wanted.files), number).write(lake)
    taken = take_out(spark, uri, split, {"erasure": erasure.id}, {COMMIT: number})
    return erasure.ended(Removed(taken.rows, taken.files)).write(lake)


def without_history(lake: Lake, erasure: Erasure, table: str) -> Erasure:
    """The record with the files of a table that only its old versions needed, which are deleted."""
    uri = lake.path(table)
    old = _old_files(uri)
    if not old:
        _forget_history(uri, erasure.id)
        return erasure
    erasure = erasure.begins(table, Removed(vacuumed=old)).write(lake)
    return erasure.ended(Removed(vacuumed=_forget_history(uri, erasure.id))).write(lake)


def settled(lake: Lake, erasure: Erasure) -> Erasure:
    """An erasure that died, with what it had removed by then of the table at which it was."""
    at = erasure.under_way
    if at is None:
        return erasure
    table = delta.open_table(lake.path(at.table))
    if table is None:
        return replace(erasure, under_way=None).write(lake)
    if at.number is None:
        # Those that are still there are counted when they go.
        gone = Removed(vacuumed=max(0, at.removed.vacuumed - _old_files(lake.path(at.table))))
    else:
        gone = at.removed if table.transaction_version(COMMIT) == at.number else Removed()
    return erasure.ended(gone).write(lake)


def _old_files(uri: str) -> int:
    """The number of data files of the table that `_forget_history` would delete now."""
    table = delta.opened(uri)
    return len({path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=True)})


def _forget_history(uri: str, erasure: str) -> int:
    """Delete every file that only older versions of the table need, and every older entry of its log.

    Also what no version needs, an hour after it was written. Returns how many data files went. What the table says of
    itself is said once more before, by the one entry that stays, because readers look for it there.
    """
    table = delta.opened(uri)
    numbers = numbers_of(table)
    delta.note(uri, says={"erasure": erasure}, numbers=numbers)
    table = delta.opened(uri)
    gone = [path for hours, full in _VACUUMS for path in _vacuum(table, hours, full, dry_run=False)]
    table = delta.opened(uri)
    delta.note(uri, says={"erasure": erasure}, numbers=numbers)
    # Files have the time of their storage, and all entries before a checkpoint of this version are to go.
    clean_up(delta.opened(uri), utc_now() + timedelta(days=1))
    return len(gone)


def _vacuum(table: DeltaTable, hours: int, full: bool, *, dry_run: bool) -> list[str]:
    return table.vacuum(hours, dry_run=dry_run, enforce_retention_duration=False, full=full)

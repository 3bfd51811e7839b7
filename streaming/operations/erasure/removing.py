"""Removes a person's rows and the files of old versions, and notes what went: no death makes the record forget any."""

from __future__ import annotations

import secrets
from dataclasses import replace

from pyspark.sql import SparkSession

from streaming.lake import Lake
from streaming.operations.erasure.history import forget_history, old_files
from streaming.operations.erasure.record import COMMIT, Erasure, Removed
from streaming.tables import Split, delta, take_out, to_be_taken


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
    old = old_files(uri)
    if not old:
        forget_history(uri, erasure.id)
        return erasure
    erasure = erasure.begins(table, Removed(vacuumed=old)).write(lake)
    return erasure.ended(Removed(vacuumed=forget_history(uri, erasure.id))).write(lake)


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
        gone = Removed(vacuumed=max(0, at.removed.vacuumed - old_files(lake.path(at.table))))
    else:
        gone = at.removed if table.transaction_version(COMMIT) == at.number else Removed()
    return erasure.ended(gone).write(lake)

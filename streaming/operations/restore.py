"""Restores a savepoint: into the lake that it was taken in, or as a lake of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from streaming.base import ChangedDeclaration, SavepointError, utc_now
from streaming.declare import Delivery, Operator, Pipeline
from streaming.deliveries import Ledger, LedgerTable, outbox_of
from streaming.lake import Lake
from streaming.log import QUERY
from streaming.operations.rebuild import RebuildListener, built_beside, put_in_place
from streaming.operations.savepoint import (
    SavedTable,
    Savepoint,
    drop_savepoint,
    find_savepoint,
    fingerprint_of,
    savepoint,
)
from streaming.operators import make_ready, next_of, ready_generation, remove_next
from streaming.service import take_lease
from streaming.tables import changed_facts, copy_files, copy_table, delta, storage


@dataclass(frozen=True)
class Restored:
    """The outcome of a restore: the savepoint, bytes of data copied, and copied files that wait for a batch, by stream.

    `left_out`: operators whose tables stay as they are, because the savepoint has none of them, or they cannot be
    computed again.
    """

    savepoint: Savepoint
    copied: int
    waiting: Mapping[str, int]
    left_out: tuple[str, ...] = ()


def restore(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    name: str,
    now: Callable[[], datetime] = utc_now,
    listener: RebuildListener | None = None,
) -> Restored:
    """Put the operators' tables of a savepoint in place of those there are, as a new generation of them.

    The log stays, with all that came since, and so do the answers of enrichments: steps go on from the savepoint, over
    the batches behind it. Old tables are read until each operator's new ones have caught up and take their place in one
    commit. The pipeline may run; then its process puts them in place. Deliveries of what was restored wait for
    `tidemark redeliver`, those of the logs go on. Whatever kills it: running it again begins anew with those operators
    that are not in place.

    Raises:
        SavepointError: there is no such savepoint, or what it needs is gone.
        ChangedDeclaration: an operator is declared in another way by now.
        LeaseError: another process builds tables of the same operator.
    """
    saved = find_savepoint(lake, pipeline, name)
    _check_whole(lake, pipeline, saved)
    # What an enrichment was answered since is nowhere else: like the log, it stays.
    again = [operator for operator in pipeline.operators if not operator.never_rebuilt]
    operators = [operator for operator in again if saved.of(_place(operator)) is not None]
    for operator in operators:
        _check_declaration(saved, operator)
    copied = 0
    for operator in operators:
        with built_beside(lake, next_of(operator)):
            # What was built anew before and is being put in place just now must not be removed meanwhile.
            if ready_generation(lake, operator) is not None:
                put_in_place(spark, lake, pipeline, operator, now, listener or RebuildListener())
            remove_next(lake, operator)
            # The own table last: a copy without it is none.
            for suffix in [*operator.own_suffixes, ""]:
                table = saved.of(_place(operator, suffix))
                if table is not None:
                    beside = lake.table(next_of(operator), suffix)
                    copied += copy_table(_open(lake, pipeline, saved, table), beside, back_to=table.back_to)
            make_ready(lake, operator)
            put_in_place(spark, lake, pipeline, operator, now, listener or RebuildListener())
    left_out = tuple(operator.name for operator in pipeline.operators if operator not in operators)
    return Restored(saved, copied, {}, left_out)


def restore_to(lake: Lake, pipeline: Pipeline, name: str, to: Lake) -> Restored:
    """Make a lake of a savepoint: a second pipeline, which goes on from there as if it had been killed at that instant.

    All of it is copied: logs, operators' tables and state, the checkpoints of the sources, and of a landing folder in
    the lake the files that no batch had taken. Sources elsewhere are read by both. No delivery goes on by itself. The
    lake it is taken from is only read, and may be one that was moved.

    Raises:
        SavepointError: there is no such savepoint, what it needs is gone, or `to` has a pipeline of these streams.
        LeaseError: another process is at work in `to`.
    """
    saved = find_savepoint(lake, pipeline, name)
    _check_whole(lake, pipeline, saved)
    with take_lease(to, pipeline, "restore"):
        _check_empty(to, pipeline)
        logs = {to.log(stream) for stream in pipeline.logs}
        # The logs last: without them no process begins to write there.
        tables = sorted(saved.tables, key=lambda table: to.path(table.place) in logs)
        waiting = {stream.name: _bring_source(lake, pipeline, saved, to, stream.name) for stream in pipeline.streams}
        for delivery in pipeline.deliveries:
            _hold_back(to, delivery, saved.deliveries.get(delivery.name))
        copied = sum(
            copy_table(_open(lake, pipeline, saved, table), to.path(table.place), back_to=table.back_to)
            for table in tables
        )
    return Restored(saved, copied, waiting)


def fork(lake: Lake, pipeline: Pipeline, name: str | None, to: Lake) -> Restored:
    """Make a second pipeline in the lake `to`, which goes on from the savepoint `name`, or from how everything is now.

    As `restore_to`; without a name the savepoint is taken for it, and dropped afterwards.
    """
    if name is not None:
        return restore_to(lake, pipeline, name, to)
    taken = savepoint(lake, pipeline)
    try:
        return restore_to(lake, pipeline, taken.name, to)
    finally:
        drop_savepoint(lake, pipeline, taken.name)


def _bring_source(lake: Lake, pipeline: Pipeline, saved: Savepoint, to: Lake, name: str) -> int:
    """Copy the checkpoint of a stream, and what its source holds in the lake; returns how much of it waits."""
    stream = next(each for each in pipeline.streams if each.name == name)
    kept, checkpoint = lake.savepoint(pipeline, saved.name, "checkpoints", name), to.checkpoint(stream, QUERY)
    copied = [path for path, _ in storage.walked(kept, _is_visible)]
    if copied:
        copy_files(storage.below(kept), copied, checkpoint)
    return stream.source.move(checkpoint, saved.sources[name], lake, to)


def _hold_back(to: Lake, delivery: Delivery, numbers: Mapping[str, int] | None) -> None:
    """Begin the ledger of a delivery so that nothing is sent until somebody says what is meant."""
    beginning = Ledger.beginning(outbox_of(delivery, to).start, whole=delivery.what == "current")
    ledger = beginning if numbers is None else Ledger(**numbers)
    LedgerTable(to, delivery, "").begin(ledger.restored())


def _open(lake: Lake, pipeline: Pipeline, saved: Savepoint, table: SavedTable) -> DeltaTable:
    """A table as it was: the copy, or the version of the table in the lake."""
    if table.kept_at:
        return delta.opened(lake.savepoint(pipeline, saved.name, table.kept_at))
    return delta.opened(lake.path(table.place), table.version)


def _check_whole(lake: Lake, pipeline: Pipeline, saved: Savepoint) -> None:
    """Refuse before anything is copied where something of the savepoint is gone.

    Raises:
        SavepointError: naming the tables.
    """
    gone = lost_tables(lake, pipeline, saved)
    if gone:
        raise SavepointError(
            f"savepoint {saved.name!r} of {pipeline.name!r} cannot be restored: of {', '.join(gone)} files are gone, "
            "or the table was removed since. Restore them from a backup; or build what follows from the log anew with "
            "`tidemark rebuild`. Nothing was changed."
        )


def lost_tables(lake: Lake, pipeline: Pipeline, saved: Savepoint) -> list[str]:
    """The places of those tables of a savepoint that are not as they were: removed since, or without some file."""
    return [table.place for table in saved.tables if not _is_whole(lake, pipeline, saved, table)]


def _is_whole(lake: Lake, pipeline: Pipeline, saved: Savepoint, table: SavedTable) -> bool:
    uri = lake.savepoint(pipeline, saved.name, table.kept_at) if table.kept_at else lake.path(table.place)
    try:
        there = delta.open_table(uri, table.version)
    except DeltaError:
        return False
    if there is None or str(there.metadata().id) != table.identity:
        return False
    return not storage.missing_files(there)


def _check_empty(to: Lake, pipeline: Pipeline) -> None:
    """Refuse a lake that has something of these streams, also what a restore left that died.

    Raises:
        SavepointError: naming the folders.
    """
    taken = [
        uri
        for stream in pipeline.streams
        for uri in (to.path(stream.name), to.checkpoint(stream, QUERY))
        if any(storage.walked(uri, _is_visible))
    ]
    if taken:
        raise SavepointError(
            f"{to.root!r} has streams of pipeline {pipeline.name!r} already: {', '.join(taken)}. Choose another lake; "
            "or, if a restore died there, remove these folders. Nothing was changed."
        )


def _check_declaration(saved: Savepoint, operator: Operator) -> None:
    """Refuse tables that another declaration made.

    Raises:
        ChangedDeclaration: with each difference in words.
    """
    changes = list(map(str, changed_facts(saved.made_by.get(operator.name, {}), fingerprint_of(operator))))
    if changes:
        raise ChangedDeclaration(
            f"view {operator.name!r} is not the one that savepoint {saved.name!r} is of: {'; '.join(changes)}. Give "
            "the old declaration back; or leave the savepoint and build the view anew with `tidemark rebuild "
            f"{operator.name}`. Nothing was changed."
        )


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _place(operator: Operator, suffix: str = "") -> str:
    return f"{operator.folder}/{operator.table_name(suffix)}"

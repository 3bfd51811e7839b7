"""Maintenance: small files are compacted, and what nobody needs any more is removed, while everything goes on."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from deltalake import DeltaTable

from streaming import log
from streaming.base import REVISION, utc_now
from streaming.changes import note_together
from streaming.declare import CHANGES, DEAD, Pipeline
from streaming.lake import Lake
from streaming.operations.cuts import forget_recomputed
from streaming.operations.savepoint import Pinned, pinned
from streaming.operators import about_table
from streaming.service import forget_progress, rewriting
from streaming.tables import TableAbout, attempts, clean_up, delta, describe, storage

_HOUR = timedelta(hours=1)
_WEEK = timedelta(days=7)
_MONTH = timedelta(days=30)
_WITHOUT_BOUNDS = TableAbout(bounded=())


@dataclass(frozen=True)
class Maintained:
    """The maintenance done to one table.

    Live data files and their bytes before and after; `files_removed`, data files deleted from storage;
    `entries_removed`, files of the Delta log.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    files_removed: int
    entries_removed: int


@dataclass(frozen=True)
class _Table:
    """`compacted`: it keeps many small files; `cleaned`: nobody reads its history; `about`: what it says of itself."""

    uri: str
    compacted: bool = True
    cleaned: bool = True
    about: TableAbout = _WITHOUT_BOUNDS


def maintain(
    lake: Lake,
    pipeline: Pipeline,
    *,
    retention: timedelta = _WEEK,
    entry_retention: timedelta = _MONTH,
    now: Callable[[], datetime] = utc_now,
) -> list[Maintained]:
    """Compact and clean every table of a pipeline that is there; no result of any query changes.

    Data files go once they have been out of the table for `retention`, and files that were never committed once they
    are that old, which is also how long a version stays readable and a write may take. Log entries go after
    `entry_retention`, when what they say of batches is in the archive. The history of corrections is kept: it tells how
    far each day is corrected. Tables of open windows are written whole each time, so there is nothing to compact. What
    `progress` says of a batch goes after a month.

    What the declarations say of columns, keys and bounds by now is written into the tables' metadata, also of state.

    A table in which nothing was written since is left alone, and not in what is returned, until `retention` is over and
    files can go again.

    What a savepoint needs stays until it is dropped. Views read rows and no old versions, so nothing has to be kept for
    one that is behind. Runs beside the stream, corrections and reports, and may be killed and run again at any time.
    Retentions shorter than a step, a run or a report takes are for lakes at rest. What an operator keeps as state it
    cleans itself, and a delivery its ledger.

    Raises:
        LeaseError: another process maintains the pipeline, drops days of it or erases somebody.
    """
    with rewriting(lake, pipeline):
        return _maintain(lake, pipeline, retention, entry_retention, now)


def _maintain(
    lake: Lake, pipeline: Pipeline, retention: timedelta, entry_retention: timedelta, now: Callable[[], datetime]
) -> list[Maintained]:
    state = [
        _Table(lake.table(operator, table.suffix), about=about_table(operator, table.suffix))
        for operator in pipeline.operators
        for table in operator.tables
        if table.is_state
    ]
    for kind in (*_tables(lake, pipeline), *state):
        if (table := delta.open_table(kind.uri)) is not None:
            describe(table, kind.about)
    at = now()
    again_after = min(retention, entry_retention)
    forget_progress(lake, pipeline, at - _MONTH)
    forget_recomputed(lake, at - _WEEK)
    versions, kept = _MaintainedVersions.read(lake, pipeline), pinned(lake, pipeline)
    done: list[Maintained] = []
    # One to which nobody has sent anything yet, such as a stream of rules, has no log.
    begun = [stream for stream in pipeline.logs if delta.exists(lake.log(stream))]
    for stream in begun or pipeline.logs:
        log.archive_batches(lake, stream)
    for kind in _tables(lake, pipeline):
        if not versions.is_due(kind.uri, at, again_after):
            continue
        done.append(_table(kind, at, retention, entry_retention, kept.get(kind.uri, Pinned())))
        versions = versions.after(kind.uri, now())
    if done:
        versions.write(lake, pipeline)
        # The files of older versions are going.
        note_together(lake, pipeline)
    return done


def needs_maintenance(lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> bool:
    """True if `maintain` would find a table to see to."""
    versions = _MaintainedVersions.read(lake, pipeline)
    return any(versions.is_due(kind.uri, now(), min(_WEEK, _MONTH)) for kind in _tables(lake, pipeline))


def _tables(lake: Lake, pipeline: Pipeline) -> list[_Table]:
    tables = [_Table(lake.progress(pipeline))]
    for stream in pipeline.logs:
        tables.append(_Table(lake.log(stream), about=log.about_log(stream)))
        tables.append(_Table(lake.batches(stream)))
    tables += [_Table(lake.dropped(stream)) for stream in pipeline.streams]
    for operator in pipeline.operators:
        tables += [
            _Table(
                lake.table(operator, table.suffix),
                compacted=not table.is_replaced,
                cleaned=not table.keeps_history,
                about=about_table(operator, table.suffix),
            )
            for table in (*operator.tables, *operator.published)
            if not table.is_state
        ]
    for delivery in pipeline.deliveries:
        told = TableAbout(bounded=(REVISION,))
        tables += [_Table(lake.table(delivery, DEAD)), _Table(lake.table(delivery, CHANGES), about=told)]
    for receiver in pipeline.receivers:
        tables += [_Table(lake.table(receiver, suffix)) for suffix in receiver.reserved_suffixes]
    return tables


def _table(kind: _Table, at: datetime, retention: timedelta, entry_retention: timedelta, kept: Pinned) -> Maintained:
    table = delta.opened(kind.uri)
    files_before, bytes_before = _size(table)
    entries = clean_up(table, at - entry_retention, kept.entries) if kind.cleaned else 0
    # An open table remembers the entries that it was read from.
    table = delta.opened(kind.uri)
    if kind.compacted:
        _compact(table)
    removed = _vacuum(table, retention, kept.versions)
    files_after, bytes_after = _size(table)
    name = kind.uri.rpartition("/")[2]
    return Maintained(name, files_before, files_after, bytes_before, bytes_after, removed, entries)


def _compact(table: DeltaTable) -> None:
    # A correction may replace what is just being compacted.
    for attempt in attempts(table):
        with attempt:
            table.optimize.compact()


def _vacuum(table: DeltaTable, retention: timedelta, kept: Collection[int]) -> int:
    """Delete what has been out of the table for long enough, and what never got into it; returns how many files.

    Files of the versions that are `kept` stay.
    """
    hours, versions = -(-retention // _HOUR), sorted(kept) or None
    # Full: files of an attempt that died were never in the table. A vacuum that finds nothing is two commits too many.
    if not table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True, keep_versions=versions):
        return 0
    gone = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=versions)
    return len(gone)


def _size(table: DeltaTable) -> tuple[int, int]:
    table.update_incremental()
    sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
    return len(sizes), sum(sizes)


@dataclass(frozen=True)
class _MaintainedVersions:
    """Per table, by its place: its identity, its version after maintenance, and when that was.

    A small file in the lake. Where it is lost, every table is maintained once more, which changes nothing.
    """

    tables: dict[str, dict[str, Any]]

    @classmethod
    def read(cls, lake: Lake, pipeline: Pipeline) -> _MaintainedVersions:
        """The versions at which the last maintenance left the pipeline's tables; none before the first."""
        return cls(storage.read_json(_place(lake, pipeline)) or {})

    def write(self, lake: Lake, pipeline: Pipeline) -> None:
        """Put it in place whole."""
        storage.replace_bytes(_place(lake, pipeline), json.dumps(self.tables).encode(), uuid.uuid4().hex)

    def is_due(self, uri: str, at: datetime, again_after: timedelta) -> bool:
        """True if the table at `uri` is there and was written since, or was left alone for as long as `again_after`."""
        table = delta.open_table(uri)
        if table is None:
            return False
        last = self.tables.get(uri)
        if last is None or (last["id"], last["version"]) != _state(table):
            return True
        return at - datetime.fromisoformat(last["at"]) >= again_after

    def after(self, uri: str, at: datetime) -> _MaintainedVersions:
        """With the table at `uri` maintained at the instant `at`, as it is now."""
        table = delta.open_table(uri)
        assert table is not None, uri
        identity, version = _state(table)
        return _MaintainedVersions(self.tables | {uri: {"id": identity, "version": version, "at": at.isoformat()}})


def _state(table: DeltaTable) -> tuple[str, int]:
    return str(table.metadata().id), table.version()


def _place(lake: Lake, pipeline: Pipeline) -> str:
    return lake.path(pipeline.stream.name, f"_maintained-{pipeline.name}.json")

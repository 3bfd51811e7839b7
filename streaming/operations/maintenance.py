"""Maintenance: small files are compacted, and what nobody needs any more is removed, while everything goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from deltalake import DeltaTable

from streaming import log
from streaming.base import utc_now
from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.operations.maintained import MaintainedVersions
from streaming.operators import ReadPosition, runtime_of
from streaming.service import forget_progress
from streaming.tables import attempts, clean_up, commits_since, delta, storage

_HOUR = timedelta(hours=1)
_WEEK = timedelta(days=7)
_MONTH = timedelta(days=30)


@dataclass(frozen=True)
class Maintained:
    """What was done to one table.

    Live data files and their bytes before and after; `files_removed`, data files deleted from storage;
    `entries_removed`, files of the Delta log; `held_by`, the views that have not read what would have been removed.
    """

    table: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    files_removed: int
    entries_removed: int
    held_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """`compacted`: it keeps many small files; `cleaned`: nobody reads its history; `log_of`: whose event log it is."""

    uri: str
    compacted: bool = True
    cleaned: bool = True
    log_of: Stream | None = None


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

    A table in which nothing was written since is left alone, and not in what is returned, until `retention` is over and
    files can go again.

    What a view's stream has not read yet stays, however old it is. Runs beside the stream, corrections and reports, and
    may be killed and run again at any time. Retentions shorter than a run or a report takes are for lakes at rest.
    """
    at = now()
    again_after = min(retention, entry_retention)
    forget_progress(lake, pipeline, at - _MONTH)
    versions = MaintainedVersions.read(lake, pipeline)
    done: list[Maintained] = []
    for stream in pipeline.streams:
        log.archive_batches(lake, stream)
    for kind in _tables(lake, pipeline):
        if not versions.is_due(kind.uri, at, again_after):
            continue
        through, held_by = (None, ()) if kind.log_of is None else _needed(lake, pipeline, kind.log_of, at - retention)
        done.append(_table(kind, at, retention, entry_retention, through, held_by))
        # What a view holds back may go as soon as the view has read it.
        versions = versions if held_by else versions.after(kind.uri, now())
    if done:
        versions.write(lake, pipeline)
    return done


def needs_maintenance(lake: Lake, pipeline: Pipeline, now: Callable[[], datetime] = utc_now) -> bool:
    """Whether `maintain` would find a table to see to."""
    versions = MaintainedVersions.read(lake, pipeline)
    return any(versions.is_due(kind.uri, now(), min(_WEEK, _MONTH)) for kind in _tables(lake, pipeline))


def _tables(lake: Lake, pipeline: Pipeline) -> list[_Table]:
    tables = [_Table(lake.progress(pipeline))]
    for stream in pipeline.streams:
        tables += [_Table(lake.log(stream), log_of=stream), _Table(lake.batches(stream))]
    for operator in pipeline.operators:
        tables += [
            _Table(lake.table(operator, table.suffix), compacted=not table.is_replaced, cleaned=not table.keeps_history)
            for table in operator.tables
        ]
    return tables


def _needed(lake: Lake, pipeline: Pipeline, stream: Stream, expired: datetime) -> tuple[int | None, tuple[str, ...]]:
    """The first version of a log whose commit an operator still looks at, and the operators that hold old rows back."""
    positions = {operator.name: runtime_of(operator, lake).position() for operator in pipeline.operators_of(stream)}
    begun = {name: position for name, position in positions.items() if position is not None}
    return min((at.entries for at in begun.values()), default=None), _holding(lake.log(stream), begun, expired)


def _holding(uri: str, positions: dict[str, ReadPosition], expired: datetime) -> tuple[str, ...]:
    """The views with unread rows that were committed before `expired`, so that compaction may have put them away."""
    table = delta.open_table(uri)
    return () if table is None else tuple(name for name, at in positions.items() if _unread(table, at.rows, expired))


def _unread(log: DeltaTable, rows: int, expired: datetime) -> bool:
    """Whether the oldest batch since version `rows` was committed before `expired`; those after it are younger."""
    for commit in commits_since(log, rows):
        if (commit["userMetadata"] or {}).get("clock"):
            return _from_millis(commit["timestamp"]) < expired
    return False


def _table(
    kind: _Table,
    at: datetime,
    retention: timedelta,
    entry_retention: timedelta,
    through: int | None = None,
    held_by: tuple[str, ...] = (),
) -> Maintained:
    table = DeltaTable(storage.location(kind.uri))
    files_before, bytes_before = _size(table)
    entries = clean_up(table, at - entry_retention, through) if kind.cleaned else 0
    # An open table remembers the entries that it was read from.
    table = DeltaTable(storage.location(kind.uri))
    if kind.compacted:
        _compact(table)
    removed = 0 if held_by else _vacuum(table, retention)
    files_after, bytes_after = _size(table)
    name = kind.uri.rpartition("/")[2]
    return Maintained(name, files_before, files_after, bytes_before, bytes_after, removed, entries, held_by)


def _compact(table: DeltaTable) -> None:
    # A correction may replace what is just being compacted.
    for attempt in attempts(table):
        with attempt:
            table.optimize.compact()


def _vacuum(table: DeltaTable, retention: timedelta) -> int:
    """Delete what has been out of the table for long enough, and what never got into it; returns how many files."""
    hours = -(-retention // _HOUR)
    # Full: files of an attempt that died were never in the table. A vacuum that finds nothing is two commits too many.
    if not table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        return 0
    return len(table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True))


def _size(table: DeltaTable) -> tuple[int, int]:
    table.update_incremental()
    sizes = table.get_add_actions(flatten=True)["size_bytes"].to_pylist()
    return len(sizes), sum(sizes)


def _from_millis(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)

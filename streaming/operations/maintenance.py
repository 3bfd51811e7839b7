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
from streaming.operators import ReadPosition, runtime_of
from streaming.service import forget_progress
from streaming.tables import clean_up, commit_history, delta, storage

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
    """`compacted`: it keeps many small files; `cleaned`: nobody reads its history."""

    uri: str
    compacted: bool = True
    cleaned: bool = True


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

    What a view's stream has not read yet stays, however old it is. Runs beside the stream, corrections and reports, and
    may be killed and run again at any time. Retentions shorter than a run or a report takes are for lakes at rest.
    """
    at = now()
    forget_progress(lake, pipeline, at - _MONTH)
    done: list[Maintained | None] = []
    for stream in pipeline.streams:
        log.archive_batches(lake, stream)
        positions = {operator.name: runtime_of(operator, lake).position() for operator in pipeline.operators_of(stream)}
        begun = {name: position for name, position in positions.items() if position is not None}
        done.append(_log(lake, stream, begun, at, retention, entry_retention))
    done += [_table(table, at, retention, entry_retention) for table in _tables(lake, pipeline)]
    return [entry for entry in done if entry is not None]


def _tables(lake: Lake, pipeline: Pipeline) -> list[_Table]:
    tables = [*(_Table(lake.batches(stream)) for stream in pipeline.streams), _Table(lake.progress(pipeline))]
    for operator in pipeline.operators:
        tables += [
            _Table(lake.table(operator, table.suffix), compacted=not table.is_replaced, cleaned=not table.keeps_history)
            for table in operator.tables
        ]
    return tables


def _log(
    lake: Lake,
    stream: Stream,
    positions: dict[str, ReadPosition],
    at: datetime,
    retention: timedelta,
    entry_retention: timedelta,
) -> Maintained | None:
    uri = lake.log(stream)
    holding = _holding(uri, positions, at - retention)
    through = min((found.entries for found in positions.values()), default=None)
    return _table(_Table(uri), at, retention, entry_retention, through, holding)


def _holding(uri: str, positions: dict[str, ReadPosition], expired: datetime) -> tuple[str, ...]:
    """The views with unread rows that were committed before `expired`, so that compaction may have put them away."""
    old = [
        commit["version"]
        for commit in commit_history(uri)
        if (commit["userMetadata"] or {}).get("clock") and _instant(commit["timestamp"]) < expired
    ]
    return tuple(name for name, found in positions.items() if old and max(old) >= found.rows)


def _table(
    kind: _Table,
    at: datetime,
    retention: timedelta,
    entry_retention: timedelta,
    through: int | None = None,
    held_by: tuple[str, ...] = (),
) -> Maintained | None:
    table = delta.open_table(kind.uri)
    if table is None:
        return None
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
    for attempt in delta.attempts(table):
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


def _instant(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, UTC)

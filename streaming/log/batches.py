"""The batches of an event log, from its commits and from the archive that outlives them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import takewhile
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.base import LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log.batch import Batch
from streaming.log.retention import dropped_before, dropped_rows
from streaming.tables import commits_of, delta, newest_commits, storage

_APP = "archive"
_SCHEMA = pa.schema([("batch", pa.int64()), ("described", pa.string())])


def read_batches(lake: Lake, stream: Stream, version: int | None = None) -> list[Batch]:
    """Every batch of the log, at one Delta `version` or the newest, newest first, up to that of which the lake is read.

    Of commits that were cleaned away there is what the archive kept.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream), version)
    if table is None:
        return []
    # Commits before the archive: what is cleaned away between the two reads was archived by then.
    commits = commits_of(table)
    live = {batch.number: batch for batch in _described(commits)}
    kept = archived(lake, stream)
    # The archive may know of batches that came after the version.
    newest = max(live, default=None)
    past = {number for number in kept.keys() - live.keys() if newest is None or number < newest}
    batches = live | {number: Batch.from_json(kept[number]) for number in past}
    # Only the archive tells what was erased since.
    erased = {number: kept[number]["erased"] for number in batches.keys() & kept.keys() if "erased" in kept[number]}
    batches |= {number: replace(batches[number], erased=erasures) for number, erasures in erased.items()}
    gone = dropped_rows(lake, stream, dropped_before(table))
    batches |= {number: replace(batches[number], dropped=gone[number]) for number in batches.keys() & gone.keys()}
    if not batches:
        _refuse_forgotten(lake, stream, commits)
    until = lake.batch_read(stream)
    return [batches[number] for number in sorted(batches, reverse=True) if until is None or number <= until]


def archive_batches(lake: Lake, stream: Stream) -> int:
    """Archive the batches that are not in the archive yet; returns how many they were.

    Reads their commits, and none that is older.
    """
    table = delta.open_table(lake.log(stream))
    if table is None:
        return 0
    through = archived_through(lake, stream)
    new = takewhile(lambda batch: through is None or batch.number > through, _described(newest_commits(table)))
    return archive(lake, stream, {batch.number: batch.to_json() for batch in new})


def note_erased(lake: Lake, stream: Stream, erasure: str, by_batch: Mapping[int, Mapping[str, Any]]) -> None:
    """Note in the archive what an erasure takes out of each batch, as `Batch.erased` says; it may be noted again.

    All batches have to be archived.
    """
    kept = archived(lake, stream)
    erasures = {number: {**kept[number].get("erased", {}), erasure: dict(each)} for number, each in by_batch.items()}
    _replace_archived(lake, stream, {number: {**kept[number], "erased": each} for number, each in erasures.items()})


def late_numbers(batch: Batch) -> dict[str, int]:
    """The numbers that the log's table keeps of a batch: its own, for each view that it brought late pairs."""
    return {_late_number(view): batch.number for view, pairs in (batch.late or {}).items() if pairs}


def newest_late(log: DeltaTable, view: str) -> int | None:
    """The newest batch of an open log that brought late pairs of the view; None where none did. Reads no commit."""
    return log.transaction_version(_late_number(view))


def _late_number(view: str) -> str:
    return f"late.{view}"


def head(lake: Lake, stream: Stream, version: int | None = None) -> Batch | None:
    """The newest batch, at one Delta `version` or the newest, or None where the log is empty or missing.

    Of a lake that is read as of a batch it is that one.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    if lake.cut is not None:
        return next(iter(read_batches(lake, stream, version)), None)
    table = delta.open_table(lake.log(stream), version)
    return None if table is None else newest_batch(lake, stream, table)


def batches_after(lake: Lake, stream: Stream, number: int) -> list[Batch]:
    """The batches of the log that come after batch `number`, oldest first; reads their commits, and none that is older.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    table = delta.open_table(lake.log(stream))
    if table is None:
        return []
    newer = list(takewhile(lambda batch: batch.number > number, _described(newest_commits(table))))[::-1]
    # Commits that were cleaned away are in the archive; where there is no newer one, neither is an older one needed.
    first = newer[0].number if newer else _number_after(lake, stream, table)
    if first > number + 1:
        kept = archived(lake, stream)
        if any(each not in kept for each in range(number + 1, first)):
            raise _forgotten(lake, stream)
        newer = [Batch.from_json(kept[each]) for each in range(number + 1, first)] + newer
    until = lake.batch_read(stream)
    return [batch for batch in newer if until is None or batch.number <= until]


def _number_after(lake: Lake, stream: Stream, table: DeltaTable) -> int:
    newest = newest_batch(lake, stream, table)
    return 0 if newest is None else newest.number + 1


def version_after(lake: Lake, stream: Stream, number: int) -> int | None:
    """The Delta version of the log that ends with batch `number`; None where its commit was cleaned away."""
    table = delta.open_table(lake.log(stream))
    for commit in () if table is None else newest_commits(table):
        for batch in _described([commit]):
            if batch.number <= number:
                return int(commit["version"]) if batch.number == number else None
    return None


def newest_batch(lake: Lake, stream: Stream, table: DeltaTable) -> Batch | None:
    """The newest batch in an open log, or None where it is empty.

    Raises:
        LogError: the log's history was cleaned away and is in no archive.
    """
    for batch in _described(newest_commits(table)):
        return batch
    kept = newest_archived(lake, stream)
    if kept is None:
        _refuse_forgotten(lake, stream, commits_of(table))
        return None
    return Batch.from_json(kept)


def _refuse_forgotten(lake: Lake, stream: Stream, commits: list[dict[str, Any]]) -> None:
    if not commits or commits[-1]["version"] > 0:
        raise _forgotten(lake, stream)


def _forgotten(lake: Lake, stream: Stream) -> LogError:
    return LogError(
        f"the history of the log {lake.log(stream)!r} was cleaned away, and no archive at "
        f"{lake.batches(stream)!r} tells of its batches, so the clock is not known. Restore the log's _delta_log "
        "or the archive from a backup; clean up with `maintain` only, which archives first."
    )


def _described(commits: Iterable[dict[str, Any]]) -> Iterator[Batch]:
    """The batches of `commits`; those without a clock, such as compaction, are passed over."""
    for commit in commits:
        if isinstance(commit["userMetadata"], dict) and "clock" in commit["userMetadata"]:
            yield Batch.from_json(commit["userMetadata"])


def archived(lake: Lake, stream: Stream) -> dict[int, dict[str, Any]]:
    """Per batch number what its commit said, as JSON values; empty where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    return {} if table is None else _documents(delta.contents(table))


def newest_archived(lake: Lake, stream: Stream) -> dict[str, Any] | None:
    """The content of the newest archived batch's commit, or None where nothing was archived."""
    table = delta.open_table(lake.batches(stream))
    number = None if table is None else table.transaction_version(_APP)
    if table is None or number is None:
        return None
    return _documents(delta.contents(table, [("batch", "=", number)]))[number]


def archived_through(lake: Lake, stream: Stream) -> int | None:
    """The newest archived batch, or None where nothing was archived; batches are archived without a gap."""
    table = delta.open_table(lake.batches(stream))
    return None if table is None else table.transaction_version(_APP)


def archive(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> int:
    """Append those of `described` that are newer than the archive, in one commit; returns how many they were.

    Batches are numbered without a gap, so the newest one says which are there: each is archived once, whenever a
    process dies.

    Raises:
        CommitFailedError: another process has archived meanwhile; the next call finds what is left.
    """
    uri = storage.location(lake.batches(stream))
    about = f"What the commits of the event log of {stream.name} said of their batches"
    table = delta.opened_or_created(uri, _SCHEMA, description=about, append_only=True)
    newest = table.transaction_version(_APP)
    new = sorted(number for number in described if newest is None or number > newest)
    if new:
        rows = pa.table([new, [json.dumps(described[number]) for number in new]], schema=_SCHEMA)
        commit = CommitProperties(app_transactions=[Transaction(_APP, new[-1])], max_commit_retries=0)
        write_deltalake(table, rows, mode="append", commit_properties=commit)
    return len(new)


def _replace_archived(lake: Lake, stream: Stream, described: Mapping[int, Mapping[str, Any]]) -> None:
    """Put `described` in place of what the archive has of these batches, in one commit."""
    table = delta.opened(lake.batches(stream))
    # Whatever kills this: a table that takes no replacement is made so again by whoever replaces next.
    table.alter.set_table_properties({"delta.appendOnly": "false"})
    new = {**archived(lake, stream), **described}
    rows = pa.table([sorted(new), [json.dumps(new[number]) for number in sorted(new)]], schema=_SCHEMA)
    write_deltalake(table, rows, mode="overwrite", commit_properties=CommitProperties(max_commit_retries=0))
    table.alter.set_table_properties({"delta.appendOnly": "true"})


def _documents(rows: pa.Table) -> dict[int, dict[str, Any]]:
    texts = zip(rows["batch"].to_pylist(), rows["described"].to_pylist(), strict=True)
    return {number: json.loads(text) for number, text in texts}


@dataclass(frozen=True)
class ClockReading:
    """One batch of the log as the clock sees it.

    `cause`: rows of the source, no row at all, or rejected rows that came back; `stamp`: the watermark in force when
    the batch was read, and `after` the one that it left behind, null before the first valid row; `greatest`: the
    greatest event time of the rows that move the clock, null where there is none; `rows`: rows read, `rejected` ones
    among them; `late`: late pairs per view; `processed_at`: the batch's processing time; `unknown`: rows per field
    that nobody declared.
    """

    batch: int
    cause: Literal["source", "heartbeat", "repair"]
    stamp: datetime | None
    after: datetime | None
    greatest: datetime | None
    rows: int
    rejected: int
    late: Mapping[str, int]
    processed_at: datetime
    unknown: Mapping[str, int] = field(default_factory=dict)


def clock_history(batches: Iterable[Batch]) -> list[ClockReading]:
    """One reading per batch, oldest first."""
    return [
        ClockReading(
            batch=batch.number,
            cause=batch.cause,
            stamp=batch.state.watermark,
            after=batch.after.watermark,
            greatest=max((time for time in batch.summary.greatest.values() if time is not None), default=None),
            rows=batch.summary.rows,
            rejected=batch.rejected,
            late=batch.late or {},
            processed_at=batch.summary.processed_at,
            unknown=batch.unknown or {},
        )
        for batch in sorted(batches, key=lambda batch: batch.number)
    ]

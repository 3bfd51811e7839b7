"""Retention: the days that a log has dropped, and what was dropped of which batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from streaming.base import EPOCH, LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.tables import delta

_DROPPED_BEFORE = "dropped_before"
_SCHEMA = pa.schema([("before", pa.date32()), ("batch", pa.int64()), ("gone", pa.string())])


def dropped_before(log: DeltaTable | None) -> date | None:
    """The day before which an open log has no valid row any more; None where none was dropped."""
    number = None if log is None else log.transaction_version(_DROPPED_BEFORE)
    return None if number is None else EPOCH.date() + timedelta(days=number)


def dropped_days(lake: Lake, streams: Iterable[Stream]) -> dict[str, date]:
    """The day before which each log has no valid row now, by stream; without `streams` that have all their days."""
    days = {stream.name: dropped_before(delta.open_table(lake.log(stream))) for stream in streams}
    return {name: day for name, day in days.items() if day is not None}


def dropped_number(before: date) -> dict[str, int]:
    """The number that the log's table keeps once the days `before` are dropped."""
    return {_DROPPED_BEFORE: (before - EPOCH.date()).days}


def note_dropped(lake: Lake, stream: Stream, before: date, by_batch: Mapping[int, Mapping[str, Any]]) -> None:
    """Note what is about to be dropped of each batch, as `Batch.dropped` says, with all days `before`; once.

    It counts from the commit of the log on that drops the days.
    """
    about = f"How many rows of each batch of {stream.name} its retention has dropped from the log"
    table = delta.opened_or_created(lake.dropped(stream), _SCHEMA, description=about, append_only=True)
    number = dropped_number(before)[_DROPPED_BEFORE]
    batches = sorted(by_batch)
    gone = [json.dumps(by_batch[batch]) for batch in batches]
    rows = pa.table([[before] * len(batches), batches, gone], schema=_SCHEMA)
    commit = CommitProperties(app_transactions=[Transaction(_DROPPED_BEFORE, number)], max_commit_retries=0)
    write_deltalake(table, rows, mode="append", commit_properties=commit)


def noted_before(lake: Lake, stream: Stream) -> date | None:
    """The newest day for which `note_dropped` has noted what goes, dropped by now or not yet; None for none."""
    return dropped_before(delta.open_table(lake.dropped(stream)))


def dropped_rows(lake: Lake, stream: Stream, before: date | None) -> dict[int, dict[str, Any]]:
    """Per batch what was dropped of it, as `Batch.dropped` says, of a log that has lost the days `before`."""
    table = None if before is None else delta.open_table(lake.dropped(stream))
    losses: dict[int, dict[str, Any]] = {}
    for row in () if table is None else delta.contents(table).to_pylist():
        if row["before"] <= before:
            losses[row["batch"]] = _together(losses.get(row["batch"], {}), json.loads(row["gone"]))
    return losses


def _together(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    late = Counter(one.get("late", {})) + Counter(other["late"])
    return {**{name: one.get(name, 0) + other[name] for name in ("valid", "rejected")}, "late": dict(late)}


def check_as_of(lake: Lake, stream: Stream) -> None:
    """Refuse to read a lake as of a batch that had not seen all rows of the days that were dropped since.

    Raises:
        LogError: with the batches that it can be read as of.
    """
    newest = lake.batch_read(stream)
    before = None if newest is None else dropped_days(lake, (stream,)).get(stream.name)
    if newest is None or before is None:
        return
    last = max(dropped_rows(lake, stream, before), default=-1)
    if newest < last:
        raise LogError(
            f"stream {stream.name!r} cannot be read as of batch {newest}: days before {before} were dropped from its "
            f"log by its retention, and rows of them came up to batch {last}, so nobody can tell any more what was "
            f"known of them before. Choose batch {last} or a newer one."
        )

"""Tables of many commits in the format in which the stream writes them, without a stream that takes days."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable, Schema
from deltalake.schema import Field, PrimitiveType

from streaming.clocks.clock import BatchSummary, ClockState
from streaming.declare.stream import Stream
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.log.batches import Batch
from streaming.log.read import about_log
from streaming.tables import delta, property_of_bounded
from tests.support.instants import NOW, T0

_CHECKPOINT_EVERY = 1_000
_FIELDS = [Field("_batch", PrimitiveType("long")), Field("_day", PrimitiveType("date"))]


def grow_log(lake: Lake, stream: Stream, view: str, through: int) -> None:
    """Make the log hold the batches up to `through`; every tenth brings a late pair of `view`, but not the last ten.

    Real entries and checkpoints of the Delta format, which only lack data files, as if every batch were a heartbeat
    whose row is gone: so the history alone is measured.
    """
    uri = lake.log(stream)
    for number in range(_created(uri, about_log(stream).bounded), through + 1):
        late = {view: 1} if number % 10 == 0 and number <= through - 10 else {}
        ended = NOW - timedelta(days=1) + timedelta(milliseconds=number)
        batch = Batch(number, "query", number, ClockState(), BatchSummary({}, 1, ended), stream.clock, late=late)
        numbers = {"query": number} | {f"late.{name}": number for name in late}
        _write_entry(uri, number + 1, batch.to_json(), numbers)
        _checkpoint(uri, number, through)


def grow_corrections(lake: Lake, view: Windowed, through: int) -> None:
    """Make the table of corrections hold as many commits, each of which corrects the first day anew."""
    uri, day = lake.corrections(view), T0.date().isoformat()
    for number in range(_created(uri), through + 1):
        metadata = {"through": {day: number}, "view": view.name}
        _write_entry(uri, number + 1, metadata, {f"corrected.{day}": number})
        _checkpoint(uri, number, through)


def _created(uri: str, bounded: Sequence[str] | None = None) -> int:
    """The version of the table, which is created where it is not there, of which files keep bounds of some columns."""
    if not delta.exists(uri):
        properties = property_of_bounded(bounded or (), Schema(_FIELDS))
        delta.opened_or_created(uri, Schema(_FIELDS), description="", partition_by=["_day"], properties=properties)
    return DeltaTable(uri).version()


def _checkpoint(uri: str, number: int, through: int) -> None:
    if number and (number % _CHECKPOINT_EVERY == 0 or number == through - 5):
        DeltaTable(uri).create_checkpoint()


def _write_entry(uri: str, version: int, metadata: Mapping[str, Any], numbers: Mapping[str, int]) -> None:
    written_at = int((NOW - timedelta(days=1)).timestamp() * 1000) + version
    info = {"timestamp": written_at, "operation": "WRITE", "userMetadata": json.dumps(metadata)}
    actions = [{"commitInfo": info}, *({"txn": {"appId": name, "version": at}} for name, at in numbers.items())]
    entry = Path(uri, "_delta_log", f"{version:020}.json")
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))

"""Event logs: whether their batches are told without a gap, and whether their clock can be right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from streaming.base import LogError
from streaming.declare import Stream
from streaming.lake import Lake
from streaming.log import archived_through, read_batches
from streaming.operations.doctor.ailment import Ailment

HISTORY_GONE = "history gone"
"""The kind; what follows from the batches of such a log cannot be told."""

_AHEAD = timedelta(days=1)
_SET_BACK = timedelta(minutes=5)
_NAMED = 5


def examine_log(lake: Lake, stream: Stream, now: datetime) -> Iterator[Ailment]:
    """The batches of one log, as its commits and the archive tell of them."""
    uri = lake.log(stream)
    try:
        batches = read_batches(lake, stream)[::-1]
    except LogError as gone:
        yield Ailment(HISTORY_GONE, uri, str(gone), "restore its _delta_log or the archive from a backup")
        return
    if not batches:
        return
    newest = batches[-1]
    numbers = {batch.number for batch in batches}
    gaps = [number for number in range(newest.number) if number not in numbers]
    if gaps:
        named = ", ".join(map(str, gaps[:_NAMED])) + (f" and {len(gaps) - _NAMED:,} more" if gaps[_NAMED:] else "")
        yield Ailment(
            "batches missing",
            uri,
            f"nothing tells of batch {named}: entries of its _delta_log are gone that no archive has",
            "restore the entries or the archive from a backup; rows are there, but their clock cannot be replayed",
        )
    archived = archived_through(lake, stream)
    if archived is not None and archived > newest.number:
        yield Ailment(
            "archive ahead",
            lake.batches(stream),
            f"it tells of batch {archived}, and the log ends with batch {newest.number}: the log is an older copy",
            "bring the log of the same time back, or remove the archive: what the log's own entries tell is archived "
            "again",
        )
    watermark = newest.after.watermark
    if watermark is not None and watermark - now > _AHEAD:
        yield Ailment(
            "clock in the future",
            uri,
            f"its watermark is {watermark.isoformat()}, so every row that comes is late until then",
            "`tidemark correct` counts late rows; a lower max_ahead on the clock rejects such event times from now on",
        )
    if newest.summary.processed_at - now > _SET_BACK:
        yield Ailment(
            "machine clock set back",
            uri,
            f"batch {newest.number} was processed at {newest.summary.processed_at.isoformat()}, which is yet to come",
            "set the machine's clock: freshness, heartbeats and max_ahead go by it",
        )

"""The backlogs of sources, told without Spark from the sources themselves and the checkpoints of their queries."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from platform_assets.events.metadata import place_metadata
from streaming import Lake, Stream
from streaming.log import QUERY, head
from streaming.sources import Memory, SourceBacklog, backlog_numbers
from streaming.tables import delta


def count_waiting(lake: Lake, stream: Stream) -> SourceBacklog:
    """The backlog in the stream's source that no batch has taken yet, counted now."""
    stream = stream.revisions
    log = delta.open_table(lake.log(stream))
    newest = head(lake, stream)
    count = _counter(lake, stream, None if log is None else str(log.metadata().id))
    return count({} if newest is None else newest.source)


def source_metadata(lake: Lake, stream: Stream, backlog: SourceBacklog) -> dict[str, Any]:
    """Where the source is, and what waits there as numbers, under the names that metrics have."""
    metadata = {**place_metadata(stream.source.location(lake)), **backlog_numbers([backlog])}
    return metadata | ({"warning": backlog.warning} if backlog.warning else {})


@lru_cache(maxsize=256)
def _counter(lake: Lake, stream: Stream, log: str | None) -> Callable[[Memory], SourceBacklog]:
    """Kept between the ticks of a sensor, because it remembers what it has read of the checkpoint.

    A log of another identity has another checkpoint, even in the same place.
    """
    return stream.source.backlog(lake, lake.checkpoint(stream, QUERY))

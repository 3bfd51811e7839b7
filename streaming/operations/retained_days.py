"""The days that logs keep, and those that they have dropped, read from their commits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.log import dropped_before, dropped_rows, head
from streaming.tables import delta


@dataclass(frozen=True)
class RetainedDays:
    """The log of a stream that drops days, or has dropped some.

    `kept_from`: rows of older days that come are rejected; null while no batch says so. `dropped_before`: the day
    before which the log has no valid row any more, null where it has dropped none; `rows` were dropped by then.
    """

    stream: Stream
    kept_from: date | None
    dropped_before: date | None
    rows: int


def retained_days(lake: Lake, pipeline: Pipeline) -> Iterator[RetainedDays]:
    """The logs of a pipeline that drop days by the declaration, or have dropped some; starts no Spark."""
    for stream in pipeline.streams:
        newest = head(lake, stream)
        kept_from = None if newest is None else newest.kept_from
        if stream.retention is not None or kept_from is not None:
            before = dropped_before(delta.open_table(lake.log(stream)))
            rows = sum(gone["valid"] for gone in dropped_rows(lake, stream, before).values())
            yield RetainedDays(stream, kept_from, before, rows)

"""Stretches of time that are occupied by rows, so that one very late row does not stretch what is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from streaming.base import FIRST_INSTANT, LAST_MILLISECOND, MICROSECOND, from_micros, pc

TimeRange = tuple[datetime, datetime]
"""From an instant to another one, both included."""
EVER: TimeRange = (FIRST_INSTANT, datetime.max.replace(tzinfo=UTC))
"""Every instant."""


def merged(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """The instants of the `ranges` in as few ranges as possible, in order; those that touch are one."""
    spans: list[TimeRange] = []
    for start, end in sorted(ranges):
        if spans and start - spans[-1][1] <= MICROSECOND:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def moved(ranges: Iterable[TimeRange], lower: timedelta, upper: timedelta) -> list[TimeRange]:
    """The instants from `lower` to `upper` after some instant of the `ranges`, merged."""
    return merged((shifted(start, lower), shifted(end, upper)) for start, end in ranges)


def shifted(instant: datetime, by: timedelta) -> datetime:
    """The instant that lies `by` later, or the first or last one that Python knows."""
    if by < timedelta():
        return instant + by if instant - FIRST_INSTANT >= -by else FIRST_INSTANT
    return instant + by if LAST_MILLISECOND - instant >= by else max(instant, LAST_MILLISECOND)


def overlaps(ranges: Sequence[TimeRange], start: datetime, end: datetime) -> bool:
    """True if an instant from `start` to `end`, both included, is in one of the `ranges`, which are merged."""
    place = bisect_right(ranges, end, key=lambda each: each[0]) - 1
    return place >= 0 and ranges[place][1] >= start


def have_common(ranges: Sequence[TimeRange], others: Iterable[TimeRange]) -> bool:
    """True if some instant is in one of the `ranges`, which are merged, and in one of the `others`."""
    return any(overlaps(ranges, start, end) for start, end in others)


def at_most(ranges: Sequence[TimeRange], number: int) -> list[TimeRange]:
    """The merged `ranges` with their shortest gaps closed, so that there are no more than `number`."""
    gaps = [(later[0] - earlier[1], place) for place, (earlier, later) in enumerate(pairwise(ranges))]
    kept = sorted(place for _, place in nlargest(number - 1, gaps))
    starts, ends = [0, *(place + 1 for place in kept)], [*kept, len(ranges) - 1]
    return [(ranges[start][0], ranges[end][1]) for start, end in zip(starts, ends, strict=True)] if ranges else []


def occupied(
    files: fs.FileSystem, path: str, time: str, width: timedelta, batches: tuple[int, int] | None = None
) -> list[TimeRange]:
    """Ranges of whole `width`s that hold the times of all rows in a log file.

    `batches`: of the rows of the batches after the first number and up to the second one, both in it.
    """
    micros = width // MICROSECOND
    distinct = _buckets(files, path, time, batches, micros)
    if not len(distinct):
        return []
    # Neighbours in a row are one range.
    starts = np.flatnonzero(np.diff(distinct, prepend=distinct[0] - 2) > 1)
    ends = [*(starts[1:] - 1), len(distinct) - 1]
    return [
        (_at_most_last(int(distinct[start]) * micros), _at_most_last((int(distinct[end]) + 1) * micros - 1))
        for start, end in zip(starts, ends, strict=True)
    ]


def _buckets(
    files: fs.FileSystem, path: str, time: str, batches: tuple[int, int] | None, micros: int
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    with pq.ParquetFile(files.open_input_file(path), coerce_int96_timestamp_unit="us") as file:
        rows = file.read(columns=[time] if batches is None else [time, "_batch"])
    if batches is not None:
        after, through = batches
        rows = rows.filter(pc.and_(pc.greater(rows["_batch"], after), pc.less_equal(rows["_batch"], through)))
    times = rows[time].drop_null()
    instants: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        pc.cast(pc.cast(times, pa.timestamp("us", times.type.tz)), pa.int64()).combine_chunks().to_numpy()
    )
    return np.unique(instants // micros)


def _at_most_last(micros: int) -> datetime:
    return min(from_micros(micros), LAST_MILLISECOND)

"""Replays New York City's departures of 2013 as a source system would: one line when a flight leaves.

The most delayed flights are therefore sent last, long after the hour they belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from itertools import groupby
from pathlib import Path

from streaming.feeds.departures import departures_sent
from streaming.feeds.feed_report import FeedReport
from streaming.feeds.landing import LandingWriter


def feed_flights(
    landing: Path,
    first_day: date,
    days: int,
    dirty: float = 0.005,
    progress: Callable[[int, int], None] | None = None,
) -> FeedReport:
    """Deliver the flights scheduled on ``days`` UTC days from ``first_day`` on into the folder ``landing``.

    A flight is one JSON line, sent when it leaves (a cancelled one when it should have left), with the fields
    flight, carrier, origin, dest, tailnum, sched_dep (ISO 8601, UTC), dep_delay and arr_delay (minutes, null
    when cancelled), air_time (minutes), distance (miles), cancelled. One file holds the lines sent in one
    hour, and is named after it: ``2013-01-01T10.json``. The share ``dirty`` (0 to 1) of the lines is damaged,
    the same ones each time. Lines that an earlier feed delivered are not delivered again, also when ranges
    overlap.

    ``progress`` is called with the files done and the files in all. Raises FeedError for a range without
    flights, a share outside 0 to 1, or a folder that cannot be used.
    """
    departures = departures_sent(first_day, days, dirty)
    files = [
        (name, [departure.line for departure in sent])
        for name, sent in groupby(departures, key=lambda departure: departure.file_name)
    ]
    writer = LandingWriter(landing)
    new_lines = []
    for done, (name, lines) in enumerate(files, start=1):
        new_lines.append(writer.deliver(name, lines))
        if progress is not None:
            progress(done, len(files))
    files_written = sum(1 for count in new_lines if count)
    return FeedReport(
        landing=landing,
        flights=len(departures),
        cancelled=sum(departure.cancelled for departure in departures),
        lines_written=sum(new_lines),
        files_written=files_written,
        files_left_alone=len(files) - files_written,
        damaged=Counter(departure.damage for departure in departures if departure.damage is not None),
    )

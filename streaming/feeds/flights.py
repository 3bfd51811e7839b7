"""Replays New York City's departures of 2013 as a source system would: one line when a flight leaves.

The most delayed flights are therefore sent last, long after the hour they belong to.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from itertools import groupby
from pathlib import Path
from typing import Any

from streaming.base import FeedError
from streaming.feeds.damage import Damage, damage_of, damaged_line
from streaming.feeds.landing import LandingWriter
from streaming.feeds.nycflights import scheduled_flights


@dataclass(frozen=True)
class FeedReport:
    """What one feed did: counts of the flights in the range, and of the lines and files that were new.

    ``damaged`` counts the damaged lines of the range by kind, those delivered by an earlier feed included.
    """

    landing: Path
    flights: int
    cancelled: int
    lines_written: int
    files_written: int
    files_left_alone: int
    damaged: Mapping[Damage, int]

    def __str__(self) -> str:
        share = sum(self.damaged.values()) / self.flights
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.damaged.items()) or "none"
        return (
            f"{self.flights:,} flights ({self.cancelled:,} cancelled): {self.lines_written:,} lines in "
            f"{self.files_written:,} new files in {self.landing}, {self.files_left_alone:,} files already "
            f"there; damaged on purpose: {sum(self.damaged.values()):,} lines, {share:.2%} ({kinds})"
        )


@dataclass(frozen=True)
class Departure:
    """One line on its way: when it is sent (UTC), from which airport, what it says, and how it was damaged."""

    sent_at: datetime
    origin: str
    line: str
    damage: Damage | None
    cancelled: bool

    @property
    def file_name(self) -> str:
        return f"{self.sent_at:%Y-%m-%dT%H}.json"


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


def departures_sent(first_day: date, days: int, dirty: float) -> list[Departure]:
    """The flights scheduled on ``days`` UTC days from ``first_day`` on, in the order in which they are sent.

    Raises FeedError for a range without flights, or a share ``dirty`` outside 0 to 1.
    """
    if not 0 <= dirty <= 1:
        raise FeedError(f"dirty is {dirty!r}, but it is a share between 0 and 1: give a number such as 0.005")
    return sorted(_departures(first_day, days, dirty), key=lambda departure: departure.sent_at)


def _departures(first_day: date, days: int, dirty: float) -> Iterator[Departure]:
    for flight in scheduled_flights(first_day, days).to_pylist():
        scheduled: datetime = flight["sched_dep"]
        event = _event(flight)
        key = "{sched_dep} {carrier} {flight} {origin}".format_map(event)
        damage = damage_of(key, dirty)
        yield Departure(
            sent_at=scheduled + timedelta(minutes=flight["dep_delay"] or 0.0),
            origin=event["origin"],
            line=json.dumps(event) if damage is None else damaged_line(event, damage),
            damage=damage,
            cancelled=event["cancelled"],
        )


def _event(flight: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "flight": flight["flight"],
        "carrier": flight["carrier"],
        "origin": flight["origin"],
        "dest": flight["dest"],
        "tailnum": flight["tailnum"],
        "sched_dep": f"{flight['sched_dep']:%Y-%m-%dT%H:%M:%SZ}",
        "dep_delay": flight["dep_delay"],
        "arr_delay": flight["arr_delay"],
        "air_time": flight["air_time"],
        "distance": flight["distance"],
        "cancelled": flight["dep_delay"] is None,
    }

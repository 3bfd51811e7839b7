"""Window kinds once more, from Flink's published semantics: to which windows an event is assigned, and when they merge.

A window is (start, end): start inclusive, end exclusive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.laws.oracle import EPOCH, Event, micros

Bounds = tuple[int, int]
Assign = Callable[[Event], list[Bounds]]


def sliding(size: int, slide: int, offset: int = 0) -> Assign:
    """Every window [k * slide + offset, + size) that holds the event; tumbling where slide is size."""

    def assign(event: Event) -> list[Bounds]:
        last = (event.at - offset) // slide
        first = last - size // slide - 1
        windows = [(k * slide + offset, k * slide + offset + size) for k in range(first, last + 1)]
        return [(start, end) for start, end in windows if start <= event.at < end]

    return assign


def tumbling(size: int, offset: int = 0) -> Assign:
    """The one window of that size."""
    return sliding(size, size, offset)


def local_days(zone: str) -> Assign:
    """From one midnight on the zone's clocks to the next."""

    def assign(event: Event) -> list[Bounds]:
        day = (EPOCH + timedelta(microseconds=event.at)).astimezone(ZoneInfo(zone)).date()
        midnights = [
            datetime(each.year, each.month, each.day, tzinfo=ZoneInfo(zone)) for each in (day, day + timedelta(days=1))
        ]
        return [(micros(midnights[0].astimezone(UTC)), micros(midnights[1].astimezone(UTC)))]

    return assign


def gaps(gap: Callable[[Event], int | None]) -> Assign:
    """[t, t + gap) of each event, to be merged; none where there is no positive gap."""

    def assign(event: Event) -> list[Bounds]:
        length = gap(event)
        return [(event.at, event.at + length)] if length is not None and length > 0 else []

    return assign


def merged(windows: Iterable[Bounds]) -> list[Bounds]:
    """The sessions that windows make: those that overlap or touch are one."""
    sessions: list[Bounds] = []
    for start, end in sorted(windows):
        if sessions and start <= sessions[-1][1]:
            sessions[-1] = (sessions[-1][0], max(sessions[-1][1], end))
        else:
            sessions.append((start, end))
    return sessions

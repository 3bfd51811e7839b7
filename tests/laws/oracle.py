"""The laws once more in plain Python over the input lines: no Spark, and no code shared with `streaming`.

Instants are whole microseconds since the epoch. What the engine's declarations say (`tests/laws/readings.py`) is
said here again by hand, so that a mistake in the engine's reading of them shows.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

DELAY = 5 * SECOND
MAX_AHEAD = 30 * SECOND

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)

Identity = tuple[Any, ...]
Results = dict[Identity, tuple[Any, ...]]


def micros(instant: datetime) -> int:
    """Microseconds since the epoch."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def day_of(instant: int) -> date:
    """The UTC date of an instant."""
    return (EPOCH + timedelta(microseconds=instant)).date()


@dataclass(frozen=True)
class Event:
    """A valid line: key, event time, value."""

    key: str | None
    at: int
    value: int | None


@dataclass(frozen=True)
class Verdict:
    """An event, or the reasons why the line is none, in the order of the declaration."""

    event: Event | None
    reasons: tuple[str, ...] = ()


def judge(line: bytes, now: int) -> Verdict:
    """What a line is, judged at the instant `now`. Reasons: `json`, `type: <column>` or the rule's name."""
    try:
        document = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except ValueError:
        return Verdict(None, ("json",))
    if not isinstance(document, dict):
        return Verdict(None, ("json",))
    key, written_at, value, unit = (document.get(name) for name in ("key", "at", "value", "unit"))
    at = _instant(written_at)
    wrong = {
        "key": key is not None and not isinstance(key, str),
        "at": written_at is not None and at is None,
        "value": value is not None and not _is_bigint(value),
        "unit": unit is not None and not isinstance(unit, str),
    }
    reasons = [f"type: {name}" for name, is_wrong in wrong.items() if is_wrong]
    if not wrong["at"]:
        if at is None or at < 0:
            reasons.append("event_time")
        elif at > now + MAX_AHEAD:
            reasons.append("max_ahead")
    if not wrong["value"] and value is not None and not -100 <= value <= 100:
        reasons.append("value_plausible")
    if not wrong["unit"] and unit != "C":
        reasons.append("unit_known")
    if reasons or at is None:
        return Verdict(None, tuple(reasons))
    return Verdict(Event(key, at, value))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_bigint(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _instant(text: Any) -> int | None:
    found = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    fraction, sign, hours, minutes = found.group(7), *found.group(8, 9, 10)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        local = datetime(*(int(part) for part in found.group(1, 2, 3, 4, 5, 6)), tzinfo=UTC)  # type: ignore[misc]
    except ValueError:
        return None
    return micros(local + (offset if sign == "-" else -offset)) + int((fraction or "0").ljust(6, "0"))


@dataclass(frozen=True)
class View:
    """A windowed view: its name, whether it is by key, the window's size and offset, and which events count."""

    name: str
    by_key: bool
    size: int
    offset: int
    counts: Callable[[Event], bool]

    def window(self, at: int) -> tuple[int, int]:
        """Start (inclusive) and end (exclusive) of the window that holds the instant."""
        start = at - (at - self.offset) % self.size
        return start, start + self.size

    def identity(self, event: Event) -> Identity:
        """The result that the event belongs to."""
        return (*((event.key,) if self.by_key else ()), *self.window(event.at))

    def results(self, events: Iterable[Event]) -> Results:
        """Per result: events, known values, sum, mean, least, greatest, share of positive values."""
        groups: defaultdict[Identity, list[int | None]] = defaultdict(list)
        for event in events:
            if self.counts(event):
                groups[self.identity(event)].append(event.value)
        return {identity: _aggregate(values) for identity, values in groups.items()}


def _aggregate(values: Sequence[int | None]) -> tuple[Any, ...]:
    known = [value for value in values if value is not None]
    if not known:
        return (len(values), 0, None, None, None, None, None)
    positive = sum(value > 0 for value in known) / len(known)
    return (len(values), len(known), sum(known), sum(known) / len(known), min(known), max(known), positive)


@dataclass(frozen=True)
class Row:
    """A row of the log: the payload, where it came from, its batch, its stamp and its verdict."""

    raw: bytes
    file: str
    line: int
    batch: int
    stamp: int | None
    verdict: Verdict

    def is_late(self, view: View) -> bool:
        """Whether the event's window was closed when the line came."""
        event = self.verdict.event
        return event is not None and self.stamp is not None and view.window(event.at)[1] <= self.stamp


@dataclass
class Timeline:
    """The log as it must become: feed it batches, settle it, end it."""

    now: int
    views: tuple[View, ...]
    rows: list[Row] = field(default_factory=list)
    heartbeats: list[tuple[int, int]] = field(default_factory=list)
    watermark: int | None = None
    _batches: int = 0
    _stamp: int | None = None

    def batch(self, files: Sequence[tuple[str, Sequence[bytes]]]) -> None:
        """One batch of files with their lines; it is stamped before its own lines are looked at."""
        stamp = self.watermark
        new = [
            Row(raw, name, line, self._batches, stamp, judge(raw, self.now))
            for name, lines in files
            for line, raw in enumerate(lines)
        ]
        self.rows += new
        self._stamp = stamp
        self._batches += 1
        times = [row.verdict.event.at for row in new if row.verdict.event is not None]
        if times:
            reached = max(times) - DELAY
            self.watermark = reached if stamp is None else max(stamp, reached)

    def settle(self) -> None:
        """A heartbeat if no row carries the newest watermark yet."""
        if self.watermark is not None and self.watermark != self._stamp:
            self._beat(self.watermark)

    def end_of_input(self) -> None:
        """A heartbeat at the latest end of any window that is still open."""
        ends = [
            view.window(event.at)[1]
            for view in self.views
            for event in self.events()
            if view.counts(event) and self.watermark is not None and view.window(event.at)[1] > self.watermark
        ]
        if ends:
            self.watermark = max(ends)
            self._beat(self.watermark)

    def events(self) -> list[Event]:
        """Every valid event so far."""
        return [row.verdict.event for row in self.rows if row.verdict.event is not None]

    def is_closed(self, view: View, event: Event) -> bool:
        """Whether the watermark has passed the event's window."""
        return self.watermark is not None and view.window(event.at)[1] <= self.watermark

    def late(self, view: View) -> list[Row]:
        """The rows that the view counts and whose window was closed when they came."""
        return [row for row in self.rows if _counted(view, row) and row.is_late(view)]

    def first(self, view: View) -> Results:
        """First results: the closed windows over the events that came in time."""
        return view.results(
            row.verdict.event
            for row in self.rows
            if row.verdict.event is not None and not row.is_late(view) and self.is_closed(view, row.verdict.event)
        )

    def current(self, view: View) -> Results:
        """The truth: the closed windows over all their events."""
        return view.results(event for event in self.events() if self.is_closed(view, event))

    def corrections(self, view: View) -> dict[Identity, tuple[Any, ...]]:
        """The truth of the windows with late events, and how many of those they have."""
        late: defaultdict[Identity, int] = defaultdict(int)
        for row in self.late(view):
            if row.verdict.event is not None:
                late[view.identity(row.verdict.event)] += 1
        truth = view.results(self.events())
        return {identity: (*truth[identity], number) for identity, number in late.items()}

    def late_days(self, view: View) -> dict[date, int]:
        """Late pairs per day of their window's start."""
        days: defaultdict[date, int] = defaultdict(int)
        for row in self.late(view):
            if row.verdict.event is not None:
                days[day_of(view.window(row.verdict.event.at)[0])] += 1
        return dict(days)

    def _beat(self, stamp: int) -> None:
        self.heartbeats.append((self._batches, stamp))
        self._stamp = stamp
        self._batches += 1


def _counted(view: View, row: Row) -> bool:
    return row.verdict.event is not None and view.counts(row.verdict.event)

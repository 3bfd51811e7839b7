"""What a line is, once more in plain Python: no Spark, and no code shared with `streaming`.

Instants are whole microseconds since the epoch. What the engine's declarations say (`tests/laws/readings.py`) is
written here again by hand, so that a mistake in the engine's reading of them shows.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

MAX_AHEAD = 30 * SECOND
EARLIEST = (datetime(100, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""The first event time that is valid."""
LATEST = (datetime(9900, 1, 1, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
"""The first that no longer is."""

_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,6}))?(?:Z|([+-])(\d{2}):(\d{2}))", re.ASCII
)


def micros(instant: datetime) -> int:
    """Microseconds since the epoch."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def day_of(instant: int) -> date:
    """The UTC date of an instant."""
    return (EPOCH + timedelta(microseconds=instant)).date()


_DECLARED = ("key", "at", "value", "unit")


@dataclass(frozen=True)
class Event:
    """A valid line: key, event time, value."""

    key: str | None
    at: int
    value: int | None


@dataclass(frozen=True)
class Verdict:
    """An event, or the reasons why the line is none, in the order of the declaration; fields that nobody declared."""

    event: Event | None
    reasons: tuple[str, ...] = ()
    unknown: frozenset[str] = frozenset()


def judge(line: bytes, now: int) -> Verdict:
    """What a line is, judged at the instant `now`. Reasons: `json`, `type: <column>` or the rule's name."""
    try:
        document = json.loads(line.decode("utf-8"), parse_constant=_refuse)
    except ValueError:
        return Verdict(None, ("json",))
    if not isinstance(document, dict):
        return Verdict(None, ("json",))
    unknown = frozenset(document) - set(_DECLARED)
    key, written_at, value, unit = (document.get(name) for name in _DECLARED)
    at = _instant(written_at)
    wrong = {
        "key": key is not None and not isinstance(key, str),
        "at": written_at is not None and at is None,
        "value": value is not None and not _is_bigint(value),
        "unit": unit is not None and not isinstance(unit, str),
    }
    reasons = [f"type: {name}" for name, is_wrong in wrong.items() if is_wrong]
    if not wrong["at"]:
        if at is None or not EARLIEST <= at < LATEST:
            reasons.append("event_time")
        elif at > now + MAX_AHEAD:
            reasons.append("max_ahead")
    if not wrong["value"] and value is not None and not -100 <= value <= 100:
        reasons.append("value_plausible")
    if not wrong["unit"] and unit != "C":
        reasons.append("unit_known")
    if reasons or at is None:
        return Verdict(None, tuple(reasons), unknown)
    return Verdict(Event(key, at, value), unknown=unknown)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _is_bigint(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _instant(text: Any) -> int | None:
    match = _TIMESTAMP.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    fraction, sign, hours, minutes = match.group(7), *match.group(8, 9, 10)
    offset = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
    try:
        year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
        local = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return micros(local + (offset if sign == "-" else -offset)) + int((fraction or "0").ljust(6, "0"))

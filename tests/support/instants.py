"""The instants in which the tests speak: seconds after T0."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

T0 = datetime(2026, 1, 1, tzinfo=UTC)
"""A multiple of every window size in use."""

NOW = T0 + timedelta(hours=12)
"""The processing time of every run, unless a test says otherwise."""


def at(seconds: float) -> datetime:
    """The instant that many seconds after T0, exact to the microsecond."""
    return T0 + timedelta(microseconds=round(seconds * 1_000_000))


def ms(instant: datetime) -> int:
    """The instant as milliseconds since the epoch, as sensors write it."""
    return (instant - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)

"""Intervals as users write them (`15 minutes`) and the instants they are added to."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

from streaming.base.deferred import F
from streaming.base.errors import BadInterval

if TYPE_CHECKING:
    from pyspark.sql import Column

_UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)
LAST_MILLISECOND = datetime.max.replace(microsecond=999_000, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
MILLISECOND = timedelta(milliseconds=1)

FIRST_EVENT_TIME = datetime(100, 1, 1, tzinfo=UTC)
"""The earliest event time of a valid row.

Python knows the years 1 to 9999 only, and a window may reach 99 years from a row: the bounds of every window, and the
days around them, have to be instants of those years.
"""

END_OF_EVENT_TIMES = datetime(9900, 1, 1, tzinfo=UTC)
"""Every valid row's event time lies before it, for the reason given at `FIRST_EVENT_TIME`."""


def interval(text: str) -> timedelta:
    """The length of `text`, such as `15 minutes` or `1 hour 30 minutes`; never negative.

    Raises:
        BadInterval: `text` is not a sequence of `<number> <unit>`, or longer than 9999 years.
    """
    if not isinstance(text, str):
        raise BadInterval(f"{text!r} is not an interval", "write it as text, such as '15 minutes'.", value=text)
    parts = re.findall(r"(\d+)\s*([a-z]+?)s?\b", text.strip().lower())
    rebuilt = re.sub(r"(\d+)\s*([a-z]+?)s?\b", "", text.strip().lower()).strip()
    if not parts or rebuilt or any(unit not in _UNITS for _, unit in parts):
        negative = "" if "-" not in text else (" A length is never negative; only the offset of a window may be.")
        raise BadInterval(
            f"{text!r} is not an interval",
            f"write a whole number and a unit, such as '15 minutes'. "
            f"Units: {', '.join(_UNITS)} (or their plurals).{negative}",
            value=text,
        )
    try:
        return sum((int(number) * _UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError as error:
        raise BadInterval(
            f"{text!r} is longer than all time from the year 1 to 9999",
            "write a length that can be meant, such as '36500 days'.",
            value=text,
        ) from error


def signed_interval(text: str) -> timedelta:
    """The length of `text`, below zero where it begins with a minus, such as `-15 minutes`.

    Raises:
        BadInterval: what follows the sign is no interval.
    """
    if isinstance(text, str) and text.strip().startswith("-"):
        return -interval(text.strip()[1:])
    return interval(text)


def to_micros(instant: datetime) -> int:
    """Microseconds since the epoch, exact."""
    return (instant - EPOCH) // MICROSECOND


def from_micros(micros: int) -> datetime:
    """The UTC instant `micros` microseconds after the epoch, exact."""
    return EPOCH + micros * MICROSECOND


def optional_micros(instant: datetime | None) -> int | None:
    """`to_micros`, null for no instant."""
    return None if instant is None else to_micros(instant)


def optional_instant(micros: int | None) -> datetime | None:
    """`from_micros`, null for no number."""
    return None if micros is None else from_micros(micros)


def earlier(instant: datetime | None, by: timedelta | None) -> datetime | None:
    """The instant that lies `by` before; None where there is none, or none of the years that Python knows."""
    return None if instant is None or by is None or instant - FIRST_INSTANT < by else instant - by


def literal(instant: datetime | None) -> Column:
    """The instant as a Spark timestamp, exact and independent of the machine's time zone."""
    return F.timestamp_micros(F.lit(None if instant is None else to_micros(instant)).cast("bigint"))


def date_literal(day: date) -> Column:
    """The day as a Spark date; unlike `F.lit(day)`, which leaves out leading zeros, right before the year 1000 too."""
    return F.date_from_unix_date(F.lit((day - EPOCH.date()).days))


def utc_now() -> datetime:
    """The processing time of a run; every transform takes it as an argument."""
    return datetime.now(UTC)

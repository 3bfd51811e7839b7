"""The day of a result, and the days of which the logs do not have all rows any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import singledispatch
from typing import Any

from streaming.base import AT, DAY
from streaming.declare import Keyed, Operator, OverWindows
from streaming.lake import Lake
from streaming.operators import kept_days, whole_since
from streaming.provenance.answer import Row
from streaming.reading import instant_of
from streaming.tables import delta


@singledispatch
def day_of_key(operator: Operator, key: Mapping[str, Any]) -> date | None:
    """The day of the results of a key, whose values may be texts; None where the key does not tell."""
    return None


@day_of_key.register
def _(operator: OverWindows, key: Mapping[str, Any]) -> date | None:
    return _day_of("window_start", key)


@day_of_key.register
def _(operator: Keyed, key: Mapping[str, Any]) -> date | None:
    return _day_of(AT, key)


def _day_of(column: str, key: Mapping[str, Any]) -> date | None:
    instant = key.get(column)
    if isinstance(instant, str):
        instant = instant_of(column, instant)
    return instant.astimezone(UTC).date() if isinstance(instant, datetime) else None


def why_not_whole(lake: Lake, operator: Operator, key: Row, stored: Sequence[Row]) -> str:
    """The reason why the logs do not have all rows of the results of a key any more; empty where they have them."""
    days = {day for day in (day_of_key(operator, key), *(row.get(DAY) for row in stored)) if isinstance(day, date)}
    since, kept = whole_since(lake, operator), kept_days(delta.open_table(lake.table(operator)))
    if since is not None and any(day < since for day in days):
        return f"rows of days before {since} were dropped by the retention of what it reads"
    erased = min(days & kept, default=None)
    return "" if erased is None else f"rows of {erased} were erased, and its numbers were kept"

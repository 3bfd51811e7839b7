"""The days of an operator's corrections, or of a delivery, one partition each."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import dagster as dg

from platform_assets.errors import BadDay
from platform_assets.keys import dagster_name
from streaming.declare import Delivery, Operator


def days_of(of: Operator | Delivery) -> dg.DynamicPartitionsDefinition:
    """One partition per day: for an operator each day that ever had late pairs, for a delivery each that has rows.

    They are added as they are found. Not a calendar: event time knows no first and no last day, and a day without late
    pairs has nothing to correct. So a partition that is missing in the UI is exactly a day that still waits for its
    first correction.
    """
    return dg.DynamicPartitionsDefinition(name=dagster_name("days", of.folder, of.name))


def add_days(instance: dg.DagsterInstance, of: Operator | Delivery, days: Iterable[date]) -> list[str]:
    """Make `days` partitions of an operator's corrections, or of a delivery; returns those that were none yet."""
    name = days_of(of).name
    existing = set(instance.get_dynamic_partitions(str(name)))
    new = [day.isoformat() for day in sorted(days) if day.isoformat() not in existing]
    if new:
        instance.add_dynamic_partitions(str(name), new)
    return new


def parse_days(days: Iterable[str]) -> list[date]:
    """ISO days as dates, sorted, each once.

    Raises:
        BadDay: one of them is no ISO date.
    """
    parsed = set()
    for day in days:
        try:
            parsed.add(date.fromisoformat(day))
        except ValueError as error:
            raise BadDay(
                f"{day!r} is no day",
                "write days as ISO dates, such as '2013-01-05', or give none and the planner "
                "corrects every day that needs it.",
                value=day,
            ) from error
    return sorted(parsed)

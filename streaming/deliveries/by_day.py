"""Which deliveries can be repeated by day, and of which days there are rows."""

from __future__ import annotations

from datetime import date

from streaming.base import RedeliveryError
from streaming.declare import CHANGES, Delivery, Operator
from streaming.lake import Lake
from streaming.tables import days_of

_NAMED = 5


def why_not_by_day(delivery: Delivery) -> str:
    """Why the rows of a day cannot be delivered again, and what can be done instead; empty where they can.

    They can where the target keeps one row for each key, and a row never takes the place of one of a higher revision.
    """
    target = type(delivery.to).__name__
    if delivery.what == "dead":
        return f"dead letters have no event day; `tidemark redeliver` of {delivery.of.name!r} sends them again"
    if delivery.what == "rejected":
        return "rejected rows have no event day; `tidemark repair` brings them back where they are valid now"
    if not delivery.to.keeps_keys:
        return (
            f"{target} keeps every row that it gets, so those of a day would be there twice; remove what is there, and "
            "`--all` delivers everything again, in a new generation; or deliver to a target that keeps one row for "
            "each key, such as Postgres('orders', key=('id',))"
        )
    if not delivery.identity:
        return (
            f"{target} has no key here, so it keeps every row that it gets, and those of a day would be there twice; "
            "declare a key; or remove what is there, and `--all` delivers everything again, in a new generation"
        )
    if delivery.to.keeps_history and delivery.what != "current":
        return (
            f"in {target} the last row of a key stands, so an older one that is delivered again would hide a newer; "
            "deliver what='current', of which each row comes with a new revision; or everything again with `--all`"
        )
    return ""


def days_to_deliver(lake: Lake, delivery: Delivery) -> set[date]:
    """The days of which what is delivered has rows, or had some that are deleted since."""
    of = delivery.of
    if delivery.what == "current" and isinstance(of, Operator):
        results = [lake.table(of, table.suffix) for table in of.tables if table.is_result]
        return set().union(*map(days_of, [*results, lake.table(delivery, CHANGES)]))
    if isinstance(of, Operator) and delivery.what != "late":
        return days_of(lake.table(of, delivery.output))
    return days_of(lake.log(delivery.stream))


def check_repeatable(delivery: Delivery) -> None:
    """Refuse a delivery of which no day can be repeated.

    Raises:
        RedeliveryError: with what can be done instead.
    """
    why_not = why_not_by_day(delivery)
    if why_not:
        raise RedeliveryError(f"{delivery.name!r} cannot deliver a day again: {why_not}. Nothing was delivered.")


def check_days(lake: Lake, delivery: Delivery, days: frozenset[date]) -> None:
    """Refuse days of which there is nothing.

    Raises:
        RedeliveryError: with the days that there are.
    """
    there = days_to_deliver(lake, delivery)
    missing = sorted(days - there)
    if missing:
        extent = f"its days are from {min(there)} to {max(there)}" if there else "it has no days yet"
        raise RedeliveryError(
            f"{delivery.of.name!r} has no row of {', '.join(map(str, missing[:_NAMED]))} for {delivery.name!r}; "
            f"{extent}. Nothing was delivered."
        )

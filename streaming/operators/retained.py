"""The results of an operator whose logs have lost days by their retention: whole from one day on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import DAY, ViewError, date_literal
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.log import dropped_days
from streaming.operators.pinned import LogAtVersion
from streaming.operators.runtime import runtime_of


def whole_since(lake: Lake, operator: Operator) -> date | None:
    """The first day of its results that can be computed again; None where all can, as no log has lost a day."""
    dropped = dropped_days(lake, operator.reads)
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def whole_in(lake: Lake, operator: Operator, logs: Mapping[str, LogAtVersion]) -> date | None:
    """The first day of its results that can be computed again; None where all can, as no log has lost a day.

    `logs`: by stream, at the versions that an audit looks at.
    """
    dropped = {name: log.dropped for name, log in logs.items() if log.dropped is not None}
    return runtime_of(operator, lake).whole_since(dropped) if dropped else None


def can_be_compared(since: date | None) -> Column:
    """True where a result is of a day, by `_day`, that can be computed again."""
    return F.lit(True) if since is None else F.col(DAY) >= date_literal(since)


def of_kept_days(since: date | None) -> str:
    """The words that an audit adds to what it compares."""
    return "" if since is None else f"; from {since} on"


def check_whole(lake: Lake, operator: Operator, days: Iterable[date]) -> None:
    """Refuse to compute days again of which the logs have not all rows any more.

    Raises:
        ViewError: what is published of these days stays as it is.
    """
    since = whole_since(lake, operator)
    gone = [] if since is None else sorted(day for day in days if day < since)
    if gone:
        named = f"{gone[0]}" if len(gone) == 1 else f"{len(gone):,} days from {gone[0]} to {gone[-1]}"
        raise ViewError(
            f"{operator.kind_name} {operator.name!r} cannot be corrected on {named}: rows of days before {since} were "
            "dropped by the retention of what it reads, and what is left of them would take the place of numbers that "
            "count all. What is published of these days stays as it is; choose days from then on."
        )


def check_can_rebuild(lake: Lake, operator: Operator) -> None:
    """Refuse to put what can be computed again in place of all that was published.

    Raises:
        ViewError: a log that it reads has lost days; with what can be done.
    """
    since = whole_since(lake, operator)
    if since is not None:
        raise ViewError(
            f"{operator.kind_name} {operator.name!r} cannot be built anew: rows of days before {since} were dropped by "
            "the retention of what it reads, so what it has published of them would be lost. Give the old declaration "
            f"back, and it goes on; or build it beside with `tidemark rebuild {operator.name} --as NAME`, which has "
            "what the log still tells. Nothing was changed."
        )

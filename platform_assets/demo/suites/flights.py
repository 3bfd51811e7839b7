"""Suites of what only New York's departures can know: airports, shares, and how a report must look."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

from platform_assets.demo.pipelines.flights import ORIGINS
from quality.expectations import Suite, always, nothing_from, unique

_DEPARTURES = (
    always("flights_at_least_one", "flights >= 1", "a window exists because a flight is in it"),
    always("cancelled_at_most_flights", "cancelled between 0 and flights", "cancelled flights are flights"),
    always(
        "on_time_share_between_0_and_1",
        "if(cancelled < flights, on_time_share between 0 and 1, on_time_share is null)",
        "a share of the flights that left; null where none did",
    ),
)

expectations = {"departures_by_origin": _DEPARTURES, "departures_by_origin_corrections": _DEPARTURES}


def on_time_performance(days: Iterable[date]) -> Suite:
    """The report's own suite: a row for each of `days` and each origin, and nothing lost by correcting."""
    every_day = ", ".join(f"'{day.isoformat()}'" for day in sorted(days))
    every_origin = ", ".join(f"'{origin}'" for origin in ORIGINS)
    missing = (
        "SELECT day, origin "
        f"FROM (SELECT explode(CAST(array({every_day}) AS array<date>)) AS day) "
        f"CROSS JOIN (SELECT explode(array({every_origin})) AS origin) "
        "EXCEPT SELECT day, origin FROM {batch}"
    )
    return Suite(
        (
            unique("unique_key", ("day", "origin")),
            nothing_from("every_origin_and_day", missing, "every finished day has a row for every origin"),
            always("current_at_least_first", "current_flights >= first_flights", "correcting only adds flights"),
            always(
                "shares_between_0_and_1",
                "coalesce(least(first_on_time_share, current_on_time_share), 0) >= 0 "
                "and coalesce(greatest(first_on_time_share, current_on_time_share), 0) <= 1",
                "shares of the flights that left",
            ),
        )
    )


def on_time_performance_carriers() -> Suite:
    """The suite of the report's second section: one row per carrier that flew."""
    return Suite(
        (
            unique("unique_key", ("carrier",)),
            always("flights_at_least_one", "flights >= 1", "a carrier is listed because it flew"),
            always("on_time_share_between_0_and_1", "coalesce(on_time_share, 0) between 0 and 1", "a share"),
        )
    )

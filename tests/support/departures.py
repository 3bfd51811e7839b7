"""A handful of departures, told on time and late, over three days of January 2013."""

from __future__ import annotations

from typing import Any


def departure(origin: str, sched_dep: str, delay: float | None = 0.0) -> dict[str, Any]:
    """A line of the flights' source; `sched_dep` as `01T10:20`, without delay the flight is cancelled."""
    return {
        "flight": 1,
        "carrier": "UA",
        "origin": origin,
        "dest": "LAX",
        "sched_dep": f"2013-01-{sched_dep}:00Z",
        "dep_delay": delay,
        "cancelled": delay is None,
    }


FIRST = [departure(origin, "01T10:00") for origin in ("EWR", "JFK", "LGA")]
SECOND = [departure(origin, "02T10:00") for origin in ("EWR", "JFK", "LGA")]
THIRD = [departure(origin, "03T10:00") for origin in ("EWR", "JFK", "LGA")]
CLOSING = [departure("EWR", "04T10:00")]
LATE_ON_1 = [departure("EWR", "01T10:30", 180)]
LATE_ON_3 = [departure("LGA", "03T10:30", 240)]
BROKEN = ["{"]

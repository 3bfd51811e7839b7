"""A lake of the flights that nobody has computed: delta-rs writes its tables, so that no test of them needs Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake

from streaming.lake import Lake

INSTANT = pa.timestamp("us", "UTC")
HOUR = datetime(2013, 1, 1, 10, tzinfo=UTC)
ORIGIN = pa.struct([("path", pa.string()), ("position", pa.int64()), ("repairs", pa.int64())])


def write_flights(lake: Lake, *, current: bool = True) -> Lake:
    """Three first results, of which a correction has replaced the one of LGA, and four rows of the log."""
    origins, flights = ["EWR", "JFK", "LGA"], [2, 3, 1]
    _write(lake, "departures_by_origin", {**_results(origins, flights), "_written_at": pa.array([HOUR] * 3, INSTANT)})
    if current:
        told = {"_reason": pa.array(["first", "first", "correction"]), "_revision": pa.array([0, 0, 1], pa.int64())}
        _write(lake, "departures_by_origin_current", {**_results(origins, [2, 3, 7]), **told})
    places = [("a", 0, None), ("a", 1, None), ("b", 0, None), ("a", 1, 0)]
    valid = [True, False, True, True]
    log = {
        "flight": pa.array([1, None, 2, 3], pa.int64()),
        "_rejected": pa.array([None, ["flight_present"], None, None], pa.list_(pa.string())),
        "_raw": pa.array([None, b"{\xff", None, None], pa.binary()),
        "_origin": pa.array([dict(zip(ORIGIN.names, place, strict=True)) for place in places], ORIGIN),
        "_batch": pa.array([0, 0, 1, 2], pa.int64()),
        "_day": pa.array([date(2013, 1, 1) if each else None for each in valid]),
    }
    _write(lake, "log", log)
    return lake


def _results(origins: list[str], flights: list[int]) -> dict[str, pa.Array]:
    count = len(origins)
    return {
        "origin": pa.array(origins),
        "window_start": pa.array([HOUR] * count, INSTANT),
        "window_end": pa.array([HOUR + timedelta(hours=1)] * count, INSTANT),
        "flights": pa.array(flights, pa.int64()),
        "cancelled": pa.array([0] * count, pa.int64()),
        "mean_dep_delay": pa.array([-1.0, None, float("nan")]),
        "on_time_share": pa.array([1.0, 0.5, 0.0]),
        "_day": pa.array([HOUR.date()] * count),
    }


def _write(lake: Lake, name: str, columns: dict[str, pa.Array]) -> None:
    write_deltalake(lake.path("flights", name), pa.table(columns), partition_by=["_day"])

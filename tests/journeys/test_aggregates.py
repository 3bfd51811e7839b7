"""Golden tests of what is computed per window: pairwise, by an accumulator, over all rows at once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from docs.examples.temperatures import (
    average,
    extremes,
    extremes_of_all_rows,
    lowest,
    pipeline,
    temperatures,
    typical,
)
from streaming import Lake
from streaming.declare.windowed import Windowed
from streaming.views.results import aggregate, pairs, read_first
from tests.support.feeds import readings
from tests.support.instants import T0, at
from tests.support.logs import static_log
from tests.support.runs import run, tuples

TYPES = "id string, timestamp bigint, temperature double, event_time timestamp"


@pytest.fixture(scope="module")
def measured(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after the readings of each application, under its own key, to the end of input."""
    lake = Lake(str(tmp_path_factory.mktemp("measured")))
    run(
        spark,
        lake,
        pipeline,
        readings(
            "w7@1=20, w7@14.999=15, w7@15=10, w9@0=10, w9@1=30, w9@4.999=20, w9@5=5,"
            "w8@1, w8@2=3, w8@3=4, w8@16,"  # readings without a value: accumulators that stay empty
            "w11@0=1, w11@1=3, w11@2=2, w11@3=2, w11@5=4, w11@6=1, w11@7=3, w11@8=2"
        ),
        end_of_input=True,
    )
    return lake


def found(spark: SparkSession, lake: Lake, view: Windowed, key: str) -> list[Any]:
    return tuples(read_first(spark, lake, view).where(f"id = '{key}'"), "window_end", *view.values)


def test_w7_the_lowest_temperature_of_fifteen_seconds(spark: SparkSession, measured: Lake) -> None:
    assert found(spark, measured, lowest, "w7") == [(at(15), 15.0), (at(30), 10.0)]


def test_w8_an_average_by_an_accumulator_of_ones_own_merges_with_empty_ones(
    spark: SparkSession, measured: Lake
) -> None:
    assert found(spark, measured, average, "w7") == [(at(15), 17.5), (at(30), 10.0)]
    assert found(spark, measured, average, "w8") == [(at(15), 3.5), (at(30), None)]


def extremes_of_w9(spark: SparkSession, lake: Lake, view: Windowed) -> list[Any]:
    return tuples(read_first(spark, lake, view).where("id = 'w9'"), *view.columns)


def test_w9_the_extremes_of_all_rows_of_a_window(spark: SparkSession, measured: Lake) -> None:
    expected = [("w9", at(0), at(5), 10.0, 30.0), ("w9", at(5), at(10), 5.0, 5.0)]
    assert extremes_of_w9(spark, measured, extremes_of_all_rows) == expected


def test_w10_extremes_that_are_kept_up_to_date_are_those_of_all_rows(spark: SparkSession, measured: Lake) -> None:
    expected = [("w9", at(0), at(5), 10.0, 30.0), ("w9", at(5), at(10), 5.0, 5.0)]
    assert extremes_of_w9(spark, measured, extremes) == expected
    # Their state is one value per window, not its rows.
    assert extremes.function is None and extremes_of_all_rows.function is not None


_reading = st.tuples(
    st.integers(0, 20).map(str),
    st.integers(0, 30_000),
    st.one_of(st.none(), st.floats(-1e300, 1e300), st.integers(-2, 2).map(float)),
)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(measurements=st.lists(_reading, min_size=20, max_size=120))
def test_w10_equals_w9_on_any_input(spark: SparkSession, measurements: list[tuple[str, int, float | None]]) -> None:
    rows = [
        {"id": key, "temperature": value, "event_time": T0 + timedelta(milliseconds=offset)}
        for key, offset, value in measurements
    ]
    log = static_log(spark, temperatures, TYPES, rows)

    in_full, kept = (
        tuples(aggregate(pairs(log, view), view), *view.columns) for view in (extremes_of_all_rows, extremes)
    )
    assert in_full == kept
    assert len(kept) == len({(key, offset // 5000) for key, offset, _ in measurements})


def test_w11_the_median_lies_between_the_middle_two_and_the_mode_is_the_smallest_of_the_most_frequent(
    spark: SparkSession, measured: Lake
) -> None:
    assert found(spark, measured, typical, "w11") == [(at(5), 2.0, 2.0), (at(10), 2.5, 1.0)]

from __future__ import annotations

from datetime import timedelta

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.unusual import END, drawn
from quality import Suite, always, run_suite, usual
from streaming.declare import Usual
from streaming.service.usual import HOUR, judge_hours

SERIES = drawn(11)


@pytest.fixture(scope="module")
def hours(spark: SparkSession) -> DataFrame:
    """A row for each hour of nine weeks, and one of the hour that has just begun."""
    rows = [(at, value) for at, value in SERIES.rows.items()]
    return spark.createDataFrame([*rows, (END + timedelta(minutes=5), 1.0)], "window_start timestamp, n double")


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_an_hour_without_a_finite_value_is_unusual(hours: DataFrame, value: str) -> None:
    last = END - HOUR
    broken = hours.withColumn("n", F.when(F.col("window_start") == F.lit(last), float(value)).otherwise(F.col("n")))
    suite = Suite((usual("volume", Usual("sum(n)", last="1 hour")),))
    (volume,) = run_suite(lambda: broken, suite)
    assert (volume.outcome, volume.value) == ("failed", 1.0)
    assert f"{last:%Y-%m-%d %H:%M}: no finite number, usually " in volume.observed


def test_spark_judges_the_hours_of_a_version_as_they_are_judged_without_it(hours: DataFrame) -> None:
    suite = Suite(
        (
            always("there", "n is not null", "there is a number"),
            usual("volume", Usual("sum(n)", last="7 days")),
            usual("as_of", Usual("sum(n)", last="3 days"), clock="max(window_start) - interval 2 days"),
            usual("rows", Usual(last="7 days", minimum=8)),
            usual("too_short", Usual("sum(n)", weeks=30, minimum=20)),
            usual("wrong", "sum(nothing)"),
        )
    )
    there, volume, as_of, rows, too_short, wrong = run_suite(lambda: hours, suite)
    assert there.outcome == "passed"
    told = judge_hours(SERIES.rows, Usual(last="7 days"), END).unusual
    assert (volume.outcome, volume.value) == ("failed", len(told)) and len(told) > 0
    assert volume.observed.startswith(f"{len(told)} of 168 hours, such as {told[0].at:%Y-%m-%d %H:%M}: ")
    earlier = judge_hours(SERIES.rows, Usual(last="3 days"), END - timedelta(days=2) + HOUR / 12)
    assert as_of.value == len(earlier.unusual)
    # Each hour has one row, as always.
    assert (rows.outcome, rows.observed) == ("passed", "0 of 168 hours")
    assert (too_short.outcome, too_short.observed) == ("passed", "no hour has enough history yet")
    assert wrong.outcome == "could_not_run" and "nothing" in wrong.observed

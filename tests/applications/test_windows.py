"""Golden tests of windowed applications."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from streaming.examples.sensors import mean_by_5_seconds, mean_by_second, pipeline
from streaming.lake import Lake
from streaming.views import read_first
from tests.support.feeds import readings
from tests.support.instants import at
from tests.support.runs import run, tuples


def test_w1_the_average_per_sensor_and_window_appears_once_the_watermark_has_passed_the_windows_end(
    spark: SparkSession, lake: Lake
) -> None:
    run(
        spark,
        lake,
        pipeline,
        readings("a@0.1=32, a@4.9=212, a@5=50"),  # 0, 100 and 10 degrees Celsius
        readings("a@15=14"),  # watermark 15 - 5 = 10: closes the window that ends at 10, not the one that ends at 20
    )

    by_5_seconds = tuples(read_first(spark, lake, mean_by_5_seconds), *mean_by_5_seconds.columns)
    assert [row[:3] for row in by_5_seconds] == [("a", at(0), at(5)), ("a", at(5), at(10))]
    assert [row[3] for row in by_5_seconds] == pytest.approx([50.0, 10.0], abs=1e-9)

    by_second = tuples(read_first(spark, lake, mean_by_second), *mean_by_second.columns)
    assert [row[:3] for row in by_second] == [("a", at(0), at(1)), ("a", at(4), at(5)), ("a", at(5), at(6))]
    assert [row[3] for row in by_second] == pytest.approx([0.0, 100.0, 10.0], abs=1e-9)

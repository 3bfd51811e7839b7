"""Windows to the millisecond: which one a row belongs to, and when a row is late for it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import log
from streaming.examples.late_counts import count_by_sensor, pipeline
from streaming.examples.late_counts import readings as stream
from streaming.intervals import EPOCH
from streaming.lake import Lake
from streaming.late import late_pairs
from streaming.views import read_first
from streaming.windows import Tumbling
from tests.support.feeds import readings
from tests.support.instants import T0, at
from tests.support.runs import run, tuples

MS = timedelta(milliseconds=1)
END = at(10)
HOUR = timedelta(hours=1)


@pytest.mark.parametrize(
    ("window", "instant", "start"),
    [
        (Tumbling("10 seconds"), at(0), at(0)),  # start inclusive
        (Tumbling("10 seconds"), END - MS, at(0)),
        (Tumbling("10 seconds"), END, END),  # end exclusive
        (Tumbling("10 seconds"), END + MS, END),
        (Tumbling("10 seconds"), EPOCH + MS, EPOCH),
        (Tumbling("1 hour", "15 minutes"), T0 + HOUR / 4 - MS, T0 - HOUR * 3 / 4),
        (Tumbling("1 hour", "15 minutes"), T0 + HOUR / 4, T0 + HOUR / 4),
        (Tumbling("1 day"), T0 - MS, T0 - 24 * HOUR),
        (Tumbling("1 millisecond"), at(0.001), at(0.001)),
    ],
)
def test_a_window_includes_its_start_and_excludes_its_end(
    spark: SparkSession, window: Tumbling, instant: datetime, start: datetime
) -> None:
    assigned = spark.createDataFrame([(instant,)], "at timestamp").select(window.assign(F.col("at")).alias("w"))
    assert tuples(assigned, "w.start", "w.end") == [(start, start + window.span)]


def test_a_pair_is_late_from_the_stamp_that_equals_the_windows_end(spark: SparkSession) -> None:
    stamps = {None: False, at(0): False, END - MS: False, END: True, END + MS: True}
    rows = spark.createDataFrame(
        [("a", row, T0.date(), stamp) for stamp in stamps for row in (at(0), END - MS)],
        "id string, event_time timestamp, _day date, _watermark timestamp",
    )

    pairs = count_by_sensor.pairs(rows)

    assert dict(tuples(pairs.select("_watermark", "_late").distinct())) == stamps
    # The count that a batch makes of its own late pairs knows the same boundary.
    counted = pairs.withColumn("counted", count_by_sensor.window.late_windows(F.col("event_time"), F.col("_watermark")))
    assert counted.where("counted <> cast(_late as int)").count() == 0
    assert counted.count() == 2 * len(stamps)


def test_a_stream_closes_a_window_at_the_watermark_that_equals_its_end_and_not_a_millisecond_before(
    spark: SparkSession, lake: Lake
) -> None:
    def first() -> list[tuple[str, datetime, int]]:
        return tuples(read_first(spark, lake, count_by_sensor), "id", "window_end", "readings")

    run(
        spark,
        lake,
        pipeline,
        readings("a@0, a@14.999"),  # watermark 9.999: the window that ends at 10 is open
        readings("a@9.999, a@10"),  # the last instant of that window, on time, and the first of the next one
    )
    assert first() == []

    run(
        spark,
        lake,
        pipeline,
        readings("a@15"),  # watermark 10: the window closes
        readings("a@9.999, a@10.001"),  # the first is late now, the second's window is open
    )
    assert first() == [("a", END, 2)]

    run(spark, lake, pipeline, readings("a@25.001"))  # watermark 20.001: a millisecond past the end closes as well
    assert first() == [("a", END, 2), ("a", at(20), 4)]
    late = late_pairs(log.read_log(spark, lake, stream), count_by_sensor)
    assert tuples(late, "event_time", "_watermark") == [(at(9.999), at(10))]

"""Golden tests of applications of late data: redirect it, and integrate it by day."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from streaming import log
from streaming.corrections import correct, plan, read_corrections
from streaming.examples.late_counts import count_by_sensor, pipeline
from streaming.examples.late_counts import readings as stream
from streaming.lake import Lake
from streaming.late import late_pairs
from streaming.views import read_first
from tests.support.feeds import readings
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run, tuples


@pytest.fixture(scope="module")
def redirected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after the timeline of L2."""
    lake = Lake(str(tmp_path_factory.mktemp("redirected")))
    run(
        spark,
        lake,
        pipeline,
        readings("a@1, a@9, a@16"),  # watermark 16 - 5 = 11: closes the window that ends at 10
        # a@8 is late: its window ended at 10 <= 11. a@10.5 lies behind the watermark, but its window is open.
        readings("a@8, a@10.5, a@12"),
        readings("a@26"),  # watermark 21: closes the window that ends at 20
    )
    return lake


def test_l2_late_rows_are_redirected_and_change_no_first_result(spark: SparkSession, redirected: Lake) -> None:
    late = late_pairs(log.read_log(spark, redirected, stream), count_by_sensor)

    assert tuples(read_first(spark, redirected, count_by_sensor), "id", "window_end", "readings") == [
        ("a", at(10), 2),
        ("a", at(20), 3),
    ]
    assert tuples(late, "id", "event_time", "window_end", "_watermark") == [("a", at(8), at(10), at(11))]


def test_l5_a_backfill_of_the_day_integrates_the_late_rows_and_running_it_twice_changes_nothing(
    spark: SparkSession, redirected: Lake
) -> None:
    day = T0.date()
    first = tuples(read_first(spark, redirected, count_by_sensor))

    corrected, current, backlog = [], [], []
    for _ in range(2):
        assert correct(spark, redirected, count_by_sensor, [day], lambda: NOW) == {day: 1}
        corrections = read_corrections(spark, redirected, count_by_sensor)
        assert corrections is not None
        corrected.append(tuples(corrections))
        current.append(
            tuples(read_current(spark, redirected, count_by_sensor), "id", "window_end", "readings", "_corrected")
        )
        backlog.append(plan(spark, redirected, count_by_sensor))

    assert current[0] == [("a", at(10), 3, True), ("a", at(20), 3, False)]
    assert tuples(corrections, "window_end", "readings", "_late_rows") == [(at(10), 3, 1)]
    assert backlog == [[], []]
    assert (current[1], corrected[1]) == (current[0], corrected[0])
    assert tuples(read_first(spark, redirected, count_by_sensor)) == first

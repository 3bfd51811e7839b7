"""Golden tests of late data: drop it, redirect it, update at once, integrate by day; and results before their time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from docs.examples import allowed_lateness, arrivals
from docs.examples.late_counts import count_by_sensor, count_in_time, dropping, pipeline
from docs.examples.late_counts import readings as stream
from streaming import Pipeline, drain, log
from streaming.base.errors import OperatorError
from streaming.lake.lake import Lake
from streaming.views.corrections import correct, current_results, plan, read_corrections
from streaming.views.operator import read_open
from streaming.views.results import late_pairs, late_rows, read_first
from streaming.views.updates import read_updates
from tests.support.feeds import land_all, readings
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
    assert corrections is not None
    assert tuples(corrections, "window_end", "readings", "_late_rows") == [(at(10), 3, 1)]
    assert backlog == [[], []]
    assert (current[1], corrected[1]) == (current[0], corrected[0])
    assert tuples(read_first(spark, redirected, count_by_sensor)) == first


def test_t10_results_are_fast_at_first_and_exact_once_the_batch_has_run(spark: SparkSession, redirected: Lake) -> None:
    correct(spark, redirected, count_by_sensor, [T0.date()], lambda: NOW)

    speed = tuples(read_first(spark, redirected, count_by_sensor), "id", "window_end", "readings")
    merged = tuples(read_current(spark, redirected, count_by_sensor), "id", "window_end", "readings")

    seconds = [1, 9, 16, 8, 10.5, 12, 26]
    exact = [("a", at(end), sum(end - 10 <= second < end for second in seconds)) for end in (10, 20)]
    assert speed != exact
    assert merged == exact


@pytest.fixture(scope="module")
def dropped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after the timeline of L3, and one row of b that is late for its window."""
    lake = Lake(str(tmp_path_factory.mktemp("dropped")))
    run(
        spark,
        lake,
        dropping,
        readings("a@20"),  # watermark 15
        readings("a@14.999, a@15, b@3"),
        end_of_input=True,
    )
    return lake


def test_l3_rows_behind_the_watermark_are_set_apart_and_a_row_at_the_watermark_is_not(
    spark: SparkSession, dropped: Lake
) -> None:
    rows = log.read_log(spark, dropped, stream).where("id = 'a'")
    late = late_rows(rows, stream)

    assert tuples(late, "event_time", "_watermark") == [(at(14.999), at(15))]
    assert tuples(log.valid(rows).exceptAll(late), "event_time") == [(at(15),), (at(20),)]


def test_l1_dropped_rows_change_nothing_create_nothing_and_are_counted(spark: SparkSession, dropped: Lake) -> None:
    first = read_first(spark, dropped, count_in_time)

    # a@14.999 lies behind the watermark, but its window is open; b has no window at all.
    assert tuples(first, "id", "window_end", "readings") == [("a", at(20), 2), ("a", at(30), 1)]
    late = late_pairs(log.read_log(spark, dropped, stream), count_in_time)
    assert tuples(late, "id", "event_time") == [("b", at(3))]
    assert sum((batch.late or {}).get("count_in_time", 0) for batch in log.read_batches(dropped, stream)) == 1
    assert plan(spark, dropped, count_in_time) == []
    with pytest.raises(OperatorError, match="declared with late='drop', so nothing is corrected"):
        correct(spark, dropped, count_in_time, [T0.date()], lambda: NOW)


def test_l4_late_rows_within_the_allowed_lateness_update_their_window_at_once_and_later_ones_wait(
    spark: SparkSession, lake: Lake
) -> None:
    declared, view = allowed_lateness.pipeline, allowed_lateness.updated_counts

    def said() -> list[tuple[str, object, int, str]]:
        updates = read_updates(spark, lake, view)
        assert updates is not None
        said_of = {"first": read_first(spark, lake, view), "update": updates}
        columns = ("id", "window_end", "readings")
        return [(*row, kind) for kind, rows in said_of.items() for row in tuples(rows, *columns)]

    run(
        spark,
        lake,
        declared,
        readings("a@1, a@10"),  # watermark 10: closes the window
        readings("a@5, a@6"),  # both late, in one batch: one update
        readings("a@15"),  # watermark 15 = window end + allowed lateness
        readings("a@7"),  # too late
    )
    assert said() == [("a", at(10), 1, "first"), ("a", at(10), 3, "update")]
    run(spark, lake, declared)
    assert said() == [("a", at(10), 1, "first"), ("a", at(10), 3, "update")]

    (backlog,) = plan(spark, lake, view)
    assert (backlog.day, backlog.late_pairs) == (T0.date(), 1)
    correct(spark, lake, view, [backlog.day], lambda: NOW)
    newest = current_results(
        read_first(spark, lake, view), read_corrections(spark, lake, view), view, read_updates(spark, lake, view)
    )
    assert tuples(newest, "id", "window_end", "readings") == [("a", at(10), 4)]
    assert plan(spark, lake, view) == []


@pytest.mark.long
def test_a_window_that_an_update_and_a_correction_have_from_the_same_batch_is_there_once(
    spark: SparkSession, lake: Lake
) -> None:
    declared, view = allowed_lateness.pipeline, allowed_lateness.updated_counts
    run(spark, lake, declared, readings("a@1, a@11, a@21"))  # watermark 21
    run(spark, lake, declared, readings("a@2, a@12"))  # too late for the window that ended at 10, in time for the next
    correct(spark, lake, view, [entry.day for entry in plan(spark, lake, view)], lambda: NOW)

    assert tuples(read_current(spark, lake, view), "window_end", "readings") == [(at(10), 2), (at(20), 2)]


@dataclass(frozen=True)
class Wall:
    """What had fired, and what a dashboard showed, after an arrival."""

    fired: list[tuple[object, ...]]
    shown: list[tuple[object, ...]]


@pytest.fixture(scope="module")
def arrived(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(str(tmp_path_factory.mktemp("arrived")))


@pytest.fixture(scope="module")
def walls(spark: SparkSession, arrived: Lake) -> dict[float, Wall]:
    """The walls after readings of 32, 212 and 50 °F that arrived at these seconds."""
    declared = Pipeline(arrivals.arrivals, (arrivals.per_second, arrivals.dashboard))
    walls = {}
    for second, temperature in ((0.999, 32), (1, 212), (12, 50)):
        land_all(arrived, declared.stream, [{"id": "a", "temperature": temperature}])
        drain(spark, arrived, declared, now=partial(at, second))
        walls[second] = Wall(
            fired=tuples(read_first(spark, arrived, arrivals.per_second), "window_end", "readings"),
            shown=tuples(read_open(spark, arrived, arrivals.dashboard), "id", "window_end", "readings", "mean_celsius"),
        )
    return walls


def test_t1_windows_fire_by_processing_time_once_they_are_over_exactly(walls: dict[float, Wall]) -> None:
    assert walls[0.999].fired == []
    assert walls[1].fired == [(at(1), 1)]
    assert walls[12].fired == [(at(1), 1), (at(2), 1)]


def test_t9_a_dashboard_shows_what_was_received_and_says_that_it_is_provisional(
    spark: SparkSession, arrived: Lake, walls: dict[float, Wall]
) -> None:
    assert walls[0.999].shown == [("a", at(10), 1, 0.0)]
    assert walls[1].shown == [("a", at(10), 2, 50.0)]  # replaced, not added
    # What is over is final, and no longer on the provisional table.
    assert walls[12].shown == [("a", at(20), 1, 10.0)]
    final = read_first(spark, arrived, arrivals.dashboard)
    assert tuples(final, "id", "window_end", "readings", "mean_celsius") == [("a", at(10), 2, 50.0)]
    assert "provisional" in DeltaTable(arrived.open(arrivals.dashboard)).metadata().description

"""Golden tests of windowed applications."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples import arrivals, integers, metrics, page_views, sales, traffic, window_shapes
from docs.examples.sensors import mean_by_5_seconds, mean_by_second, pipeline
from streaming import Lake, Pipeline, Stream, drain, log
from streaming.base.errors import OperatorError
from streaming.declare.windowed import Windowed
from streaming.operators.progress import FilterCounts
from streaming.operators.runtime import runtime_of
from streaming.views.results import filled, read_first, unassigned
from tests.support.feeds import Payload, land_all, readings
from tests.support.instants import T0, at
from tests.support.runs import run, tuples

MINUTE = 60
HOUR = 60 * MINUTE
EPOCH_TO_T0 = 1_767_225_600


def new_lake(factory: pytest.TempPathFactory, name: str) -> Lake:
    return Lake(str(factory.mktemp(name)))


def clock(instant: datetime) -> str:
    """The instant as JSON carries it."""
    return instant.isoformat()


def results(spark: SparkSession, lake: Lake, view: Windowed, *columns: str, of: str | None = None) -> list[Any]:
    """First results as tuples; `of` picks those of one key."""
    first = read_first(spark, lake, view)
    return tuples(first if of is None else first.where(first[view.by[0]] == of), *columns)


def run_as_it_arrives(
    spark: SparkSession, lake: Lake, declared: Pipeline, *batches: tuple[float, list[Payload]]
) -> None:
    """Drain batches that arrive at the given seconds after T0, then the end of input."""
    land_all(lake, declared.stream, *(payloads for _, payloads in batches))
    drain(spark, lake, declared, end_of_input=True, now=arriving(lake, declared.stream, [s for s, _ in batches]))


def arriving(lake: Lake, stream: Stream, seconds: list[float]) -> Callable[[], datetime]:
    """A clock that tells for the batch that comes next when it arrives; after the last one it stands still."""

    def now() -> datetime:
        head = log.head(lake, stream)
        number = 0 if head is None else head.number + 1
        return at(seconds[min(number, len(seconds) - 1)])

    return now


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


@pytest.fixture(scope="module")
def shaped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after readings of one sensor per application, in windows of every shape, to the end of input."""
    lake = new_lake(tmp_path_factory, "shaped")
    run(
        spark,
        lake,
        window_shapes.pipeline,
        [{"id": "w20", "timestamp": -1}],
        readings("w5@9.999, w5@10, w5@14.999, w5@15"),
        readings("w3@899.999, w3@900, w4@36000=10, w4@37200=30, w20@29.999, w20@30"),
        end_of_input=True,
    )
    return lake


def test_w3_hours_from_a_quarter_past_begin_at_a_quarter_past(spark: SparkSession, shaped: Lake) -> None:
    hours = results(spark, shaped, window_shapes.from_quarter_past, "window_start", "window_end", "readings", of="w3")

    quarter = 15 * MINUTE
    assert hours == [(at(quarter - HOUR), at(quarter), 1), (at(quarter), at(quarter + HOUR), 1)]


def test_w4_an_hour_every_quarter_holds_each_reading_four_times(spark: SparkSession, shaped: Lake) -> None:
    hours = results(spark, shaped, window_shapes.last_hour, "window_end", "mean", of="w4")

    ends = [at(10 * HOUR + minutes * MINUTE) for minutes in (15, 30, 45, 60, 75)]
    assert hours == [(ends[0], 10.0), (ends[1], 20.0), (ends[2], 20.0), (ends[3], 20.0), (ends[4], 30.0)]


def test_w5_readings_in_the_gaps_between_windows_are_counted_as_unassigned_and_stay_in_the_log(
    spark: SparkSession, shaped: Lake
) -> None:
    view, rows = window_shapes.ten_of_fifteen, log.read_log(spark, shaped, window_shapes.shapes)

    assert results(spark, shaped, view, "window_start", "window_end", "readings", of="w5") == [
        (at(0), at(10), 1),
        (at(15), at(25), 1),
    ]
    assert tuples(unassigned(rows, view).where("id = 'w5'"), "event_time") == [(at(10),), (at(14.999),)]
    counts = {batch.number: batch.unassigned or {} for batch in log.read_batches(shaped, window_shapes.shapes)}
    assert (counts[1]["ten_of_fifteen"], counts[1]["half_minutes"]) == (2, 0)


def test_w20_a_custom_assigner_of_half_minutes_rounds_down(spark: SparkSession, shaped: Lake) -> None:
    view = window_shapes.half_minutes

    before_the_epoch = (at(-EPOCH_TO_T0 - 30), at(-EPOCH_TO_T0), 1)
    assert results(spark, shaped, view, "window_start", "window_end", "readings", of="w20") == [
        before_the_epoch,
        (at(0), at(30), 1),
        (at(30), at(60), 1),
    ]


def test_w23_five_seconds_of_event_time_is_one_declaration(spark: SparkSession, shaped: Lake) -> None:
    windows = results(spark, shaped, window_shapes.five_seconds, "window_end", "readings", of="w5")

    assert windows == [(at(10), 1), (at(15), 2), (at(20), 1)]


@pytest.fixture(scope="module")
def travelled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after vehicles at intersection x and an accident at loc1."""
    lake = new_lake(tmp_path_factory, "travelled")
    events = [("x", "vehicle", 60), ("x", "vehicle", 299.999), ("x", "vehicle", 300), ("loc1", "accident", 150)]
    rows = [{"location": location, "kind": kind, "at": clock(at(second))} for location, kind, second in events]
    run(spark, lake, traffic.pipeline, rows, end_of_input=True)
    return lake


def test_w12_vehicles_are_counted_per_five_minutes_and_all_events_per_ten(spark: SparkSession, travelled: Lake) -> None:
    vehicles = results(spark, travelled, traffic.vehicles, "location", "window_end", "vehicles")

    assert vehicles == [("x", at(5 * MINUTE), 2), ("x", at(10 * MINUTE), 1)]
    assert results(spark, travelled, traffic.events, "window_end", "events") == [(at(10 * MINUTE), 4)]


def test_w14_an_accident_is_recent_for_five_minutes(spark: SparkSession, travelled: Lake) -> None:
    windows = results(spark, travelled, traffic.recent_accidents, "location", "window_end", "accidents")

    assert windows == [("loc1", at(minute * MINUTE), 1) for minute in (3, 4, 5, 6, 7)]


def test_w13_segments_of_registered_types_become_one_row_per_type_source_and_five_minutes(
    spark: SparkSession, lake: Lake
) -> None:
    def segment(kind: str, source: str, second: float, value: float) -> dict[str, Any]:
        return {"type": kind, "source": source, "ts": clock(at(second)), "value": value}

    run(
        spark,
        lake,
        metrics.pipeline,
        [segment("cpu", "a", 0, 2.5), segment("cpu", "a", 299.999, 0.5), segment("cpu", "b", 1, 7)],
        [segment("cpu", "a", 300, 4), segment("disk", "a", 5, 9)],
        end_of_input=True,
    )

    first, second = (at(0), at(300)), (at(300), at(600))
    assert results(spark, lake, metrics.by_5_minutes, *metrics.by_5_minutes.columns) == [
        ("cpu", "a", *first, 2, 3.0, 0.5, 2.5),
        ("cpu", "a", *second, 1, 4.0, 4.0, 4.0),
        ("cpu", "b", *first, 1, 7.0, 7.0, 7.0),
    ]
    assert runtime_of(metrics.registered, lake).filtered() == {"": FilterCounts(rows_in=5, kept=4)}


@pytest.fixture(scope="module")
def read(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after the page views of W6 and those of a reader of news."""

    def views(*entries: tuple[str, str, float]) -> list[dict[str, Any]]:
        return [{"user": user, "article": article, "at": clock(at(m * MINUTE))} for user, article, m in entries]

    lake = new_lake(tmp_path_factory, "read")
    run(
        spark,
        lake,
        page_views.pipeline,
        views(("a", "x", 0), ("a", "x", 15), ("a", "x", 30 + 0.001 / 60), ("bridge", "x", 0), ("bridge", "x", 20)),
        # The watermark is an hour behind, so that the view between the other two is on time.
        views(("bridge", "x", 10), ("reader", "x", 5), ("reader", "y", 35), ("reader", "x", 65), ("reader", "z", 96)),
        end_of_input=True,
    )
    return lake


def test_w6_rows_exactly_one_gap_apart_are_one_session_and_a_millisecond_more_makes_two(
    spark: SparkSession, read: Lake
) -> None:
    visits = results(spark, read, page_views.visits, "window_start", "window_end", "views", of="a")

    third = at(30 * MINUTE + 0.001)
    assert visits == [(at(0), at(30 * MINUTE), 2), (third, third + timedelta(minutes=15), 1)]


def test_w6_a_row_between_two_sessions_bridges_them(spark: SparkSession, read: Lake) -> None:
    visits = results(spark, read, page_views.visits, "window_start", "window_end", "views", of="bridge")

    assert visits == [(at(0), at(35 * MINUTE), 3)]


def test_w25_articles_are_counted_per_user_and_sitting_and_the_gap_is_a_parameter(
    spark: SparkSession, read: Lake
) -> None:
    sittings = results(spark, read, page_views.sittings(), "window_start", "window_end", "articles", of="reader")

    # 5, 35 and 65 are exactly half an hour apart, 96 is not.
    assert sittings == [(at(5 * MINUTE), at(95 * MINUTE), 2), (at(96 * MINUTE), at(126 * MINUTE), 1)]
    assert page_views.sittings("31 minutes").window != page_views.sittings().window


def test_w21_sums_over_all_integers_keep_one_number_per_window(spark: SparkSession, lake: Lake) -> None:
    rows = [{"n": i, "due": clock(at((i - 1) * 0.1))} for i in range(1, 201)]
    run(spark, lake, integers.pipeline, rows[:70], rows[70:], end_of_input=True)

    sums = results(spark, lake, integers.sums, "window_end", "sum", "integers")
    assert sums == [(at(5), 1275, 50), (at(10), 3775, 50), (at(15), 6275, 50), (at(20), 8775, 50)]
    assert sum(total for _, total, _ in sums) == 200 * 201 // 2
    # What is kept of an open window does not grow with its rows.
    assert integers.sums.function is None and not integers.sums.distinct


@pytest.fixture(scope="module")
def arrived(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake after readings that arrived at 0.2, 0.7 and 3.1 seconds; nothing else tells their time."""
    lake = new_lake(tmp_path_factory, "arrived")

    def reading(temperature: float) -> list[Payload]:
        return [{"id": "a", "temperature": temperature}]

    run_as_it_arrives(spark, lake, arrivals.pipeline, (0.2, reading(32)), (0.7, reading(212)), (3.1, reading(50)))
    return lake


@pytest.mark.long
def test_w2_averages_over_the_time_of_ingestion_are_the_same_when_the_view_is_built_again(
    spark: SparkSession, arrived: Lake
) -> None:
    view, columns = arrivals.mean_by_second, arrivals.mean_by_second.columns
    averages = results(spark, arrived, view, *columns)
    assert averages == [("a", at(0), at(1), 50.0), ("a", at(3), at(4), 10.0)]

    shutil.rmtree(arrived.first(view))
    drain(spark, arrived, arrivals.pipeline, now=lambda: at(86_400))

    assert results(spark, arrived, view, *columns) == averages


def test_w24_a_second_without_a_reading_is_a_row_of_zero_for_as_long_as_the_clock_goes_on(
    spark: SparkSession, arrived: Lake
) -> None:
    first = read_first(spark, arrived, arrivals.per_second)

    until_4 = tuples(filled(first, arrivals.per_second, at(4)), "window_end", "readings")
    until_6 = tuples(filled(first, arrivals.per_second, at(6.999)), "window_end", "readings")

    assert until_4 == [(at(1), 2), (at(2), 0), (at(3), 0), (at(4), 1)]
    assert until_6 == [*until_4, (at(5), 0), (at(6), 0)]


def test_w24_zeros_are_given_per_key_and_only_to_counts(spark: SparkSession) -> None:
    first = spark.createDataFrame(
        [("a", at(0), at(10), 2, 1.5), ("a", at(30), at(40), 1, 2.5), ("b", at(10), at(20), 3, 0.5)],
        "id string, window_start timestamp, window_end timestamp, readings bigint, mean_celsius double",
    )

    assert tuples(filled(first, arrivals.dashboard, at(30))) == [
        ("a", at(0), at(10), 2, 1.5),
        ("a", at(10), at(20), 0, None),
        ("a", at(20), at(30), 0, None),
        ("a", at(30), at(40), 1, 2.5),  # closed after the watermark in question, and kept
        ("b", at(10), at(20), 3, 0.5),
        ("b", at(20), at(30), 0, None),
    ]
    with pytest.raises(OperatorError, match=r"'bursts' has SessionWindow windows; empty windows are known .* Tumbling"):
        filled(first, arrivals.bursts, at(30))


@pytest.mark.long
def test_w23_every_shape_over_the_time_of_ingestion_is_one_declaration(spark: SparkSession, lake: Lake) -> None:
    reading: list[Payload] = [{"id": "a", "temperature": 50}]
    run_as_it_arrives(spark, lake, arrivals.further_shapes, (7, reading), (10, reading), (15.001, reading))

    def found(view: Windowed) -> list[Any]:
        return results(spark, lake, view, "window_start", "window_end", "readings")

    # 7 is in the windows that end at 10 and 15, 10 in those that end at 15 and 20, 15.001 in those of 20 and 25.
    assert found(arrivals.ten_seconds) == [
        (at(0), at(10), 1),
        (at(5), at(15), 2),
        (at(10), at(20), 2),
        (at(15), at(25), 1),
    ]
    assert found(arrivals.two_seconds) == [(at(end - 2), at(end), 1) for end in (8, 9, 11, 12, 16, 17)]
    # 10 is three seconds after 7; 15.001 is a millisecond more than five seconds after 10.
    assert found(arrivals.bursts) == [(at(7), at(15), 2), (at(15.001), at(20.001), 1)]
    assert found(arrivals.minutes) == [(T0, at(60), 3)]


@pytest.mark.long
def test_w22_profit_per_month_and_two_seconds_of_arrival(spark: SparkSession, lake: Lake) -> None:
    def sale(month: str, profit: int) -> list[Payload]:
        return [{"line": f"{month}-01,{month},Category5,Bat,{profit}"}]

    run_as_it_arrives(
        spark,
        lake,
        sales.pipeline,
        (0.1, sale("June", 10)),
        (0.9, sale("June", 20)),
        (1.9, [*sale("July", 5), {"line": "01-08,August,12"}, {"line": "01-08,August,Category5,Bat,much"}]),
        (2.0, sale("June", 7)),
    )

    profits = results(spark, lake, sales.profit_by_month, "month", "window_end", "profit", "sales")
    assert profits == [("July", at(2), 5, 1), ("June", at(2), 30, 2), ("June", at(4), 7, 1)]
    rejected = log.rejected(log.read_log(spark, lake, sales.sales))
    assert sorted(reasons[0].partition(":")[0] for (reasons,) in tuples(rejected, "_rejected")) == [
        "five_fields",
        "profit_is_a_number",
    ]

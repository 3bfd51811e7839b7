"""Golden tests of clocks: which watermark each batch is stamped with, and what it closes."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from pyspark.sql import SparkSession

from docs.examples import (
    bounded_disorder,
    late_counts,
    metrics,
    periodic_clock,
    punctuated_clock,
    silent_partition,
)
from streaming import BoundedOutOfOrderness, Lake, Pipeline, Punctuated, Stream
from streaming.audit.laws import audit
from streaming.log.batches import ClockReading, clock_history, read_batches
from streaming.log.read import read_log
from streaming.service.drain import drain
from streaming.views.results import late_pairs, read_first
from tests.support.feeds import land, readings
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples

HALF_PAST_TWELVE = (12 * 60 + 30) * 60
MS = 0.001


def history(lake: Lake, stream: Stream) -> list[ClockReading]:
    """What the log says of its clock."""
    return clock_history(read_batches(lake, stream))


def stamps(lake: Lake, stream: Stream) -> list[datetime | None]:
    """The stamp of each commit, oldest first."""
    return [reading.stamp for reading in history(lake, stream)]


def drained_at(
    spark: SparkSession, lake: Lake, pipeline: Pipeline, instant: datetime, *, end_of_input: bool = False
) -> None:
    """One drain with its processing time."""
    drain(spark, lake, pipeline, end_of_input=end_of_input, now=lambda: instant)


def clock_holds(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> bool:
    """Whether the audit finds every stamp to be the clock replayed."""
    return next(finding.holds for finding in audit(spark, lake, pipeline) if finding.law == "one clock")


@pytest.mark.long
def test_l6_every_row_moves_a_periodic_clock_and_only_the_trusted_sensor_a_punctuated_one(
    spark: SparkSession, lake: Lake
) -> None:
    timeline = [readings(row) for row in ("s1@100", "s2@500", "s1@90", "s1@200")]

    run(spark, lake, periodic_clock.pipeline, *timeline)
    # The stamp of a batch is the watermark after the one before it.
    assert stamps(lake, periodic_clock.periodic_readings) == [None, at(40), at(440), at(440)]
    assert history(lake, periodic_clock.periodic_readings)[-1].after == at(440)

    run(spark, lake, punctuated_clock.pipeline, *timeline)
    batches = history(lake, punctuated_clock.punctuated_readings)
    assert [reading.stamp for reading in batches] == [None, at(40), at(40), at(40)]
    assert batches[-1].after == at(140)
    # s2@500 is valid, but it moves nothing.
    assert [reading.greatest for reading in batches] == [at(100), None, at(90), at(200)]


@pytest.mark.long
def test_l7_with_a_bound_of_10_seconds_a_row_is_late_for_a_short_window_and_in_time_for_a_long_one(
    spark: SparkSession, lake: Lake
) -> None:
    def event(name: str, seconds: float) -> str:
        return f"{name}@{HALF_PAST_TWELVE + seconds}"

    def watermark(seconds: float) -> datetime:
        return at(HALF_PAST_TWELVE + seconds)

    timeline = [("e2", 10.0), ("e4", 20.0), ("l1", 8.0), ("e6", 30.0), ("l2", 5.0), ("e7", 35.0)]
    # Beyond the golden case: exactly 10 seconds old, and a millisecond older.
    last = ", ".join((event("e8", 25), event("l3", 25 - MS)))
    run(spark, lake, bounded_disorder.pipeline, *(readings(event(*entry)) for entry in timeline), readings(last))

    expected = [None, *map(watermark, (0, 10, 10, 20, 20, 25))]
    assert stamps(lake, bounded_disorder.events) == expected
    rows = read_log(spark, lake, bounded_disorder.events)
    assert tuples(rows.where("event_time < _watermark"), "id") == [("l1",), ("l2",), ("l3",)]
    assert tuples(late_pairs(rows, bounded_disorder.by_10_seconds), "id", "window_end") == [
        ("l1", watermark(10)),
        ("l2", watermark(10)),
    ]
    assert tuples(late_pairs(rows, bounded_disorder.by_30_seconds), "id") == []
    assert tuples(read_first(spark, lake, bounded_disorder.by_10_seconds), "window_end", "events") == [
        (watermark(20), 1)
    ]
    assert [sum(reading.late.values()) for reading in history(lake, bounded_disorder.events)] == [0, 0, 1, 0, 1, 0, 0]


@pytest.mark.long
def test_l9_the_slowest_partition_holds_the_watermark_until_it_is_idle_and_never_moves_it_back(
    spark: SparkSession, lake: Lake
) -> None:
    pipeline, stream = silent_partition.pipeline, silent_partition.gateway_readings
    landed = iter(range(100))

    def arrive(*rows: str) -> None:
        for row in rows:
            gateway = row.partition("@")[0]
            land(stream.source.location(lake), readings(row), name=f"{gateway}-{next(landed):06}.json")

    arrive("p0@10", "p1@3")  # two files, one batch: watermark 3
    arrive("p0@20", "p1@7")  # watermark 7
    drained_at(spark, lake, pipeline, NOW)
    assert stamps(lake, stream) == [None, at(3)]

    arrive("p0@30")
    drained_at(spark, lake, pipeline, NOW + timedelta(minutes=1))
    assert stamps(lake, stream)[2:] == [at(7)]
    assert history(lake, stream)[-1].after == at(7)  # p1 holds the watermark

    drained_at(spark, lake, pipeline, NOW + timedelta(minutes=2))  # p1 has been silent for two minutes
    assert stamps(lake, stream)[3:] == [at(30)]
    first = [("p0", at(20), 1), ("p0", at(30), 1), ("p1", at(10), 2)]
    columns = ("id", "window_end", "readings")
    assert tuples(read_first(spark, lake, silent_partition.gateway_by_10_seconds), *columns) == first

    arrive("p1@8")
    drained_at(spark, lake, pipeline, NOW + timedelta(minutes=2, seconds=1))
    assert stamps(lake, stream)[4:] == [at(30)]  # p1 counts again, and the watermark stays
    late = late_pairs(read_log(spark, lake, stream), silent_partition.gateway_by_10_seconds)
    assert tuples(late, "id", "event_time", "window_end") == [("p1", at(8), at(10))]
    assert tuples(read_first(spark, lake, silent_partition.gateway_by_10_seconds), *columns) == first

    batches = history(lake, stream)
    assert [reading.cause for reading in batches] == ["source"] * 3 + ["heartbeat", "source"]
    assert [reading.rows for reading in batches] == [2, 2, 1, 0, 1]
    by_partition = [dict(batch.summary.greatest) for batch in read_batches(lake, stream)[::-1]]
    assert by_partition == [
        {"p0": at(10), "p1": at(3)},
        {"p0": at(20), "p1": at(7)},
        {"p0": at(30)},
        {},
        {"p1": at(8)},
    ]
    assert clock_holds(spark, lake, pipeline)


@pytest.mark.long
def test_the_last_windows_of_a_silent_source_close_from_exactly_heartbeat_after_on(
    spark: SparkSession, lake: Lake
) -> None:
    clock = replace(late_counts.readings.clock, heartbeat_after="1 minute")
    stream = replace(late_counts.readings, clock=clock)
    view = replace(late_counts.count_by_sensor, of=stream)
    pipeline = Pipeline(stream, (view,))

    def later(seconds: float) -> datetime:
        return NOW + timedelta(seconds=seconds)

    # Rows of the night, read at noon: twelve hours old, and still in their windows.
    run(spark, lake, pipeline, readings("a@0, a@54.999, a@55"))
    assert stamps(lake, stream) == [None]
    drained_at(spark, lake, pipeline, later(60 - MS))
    assert stamps(lake, stream)[1:] == []

    for _ in range(2):  # the same silence again changes nothing
        drained_at(spark, lake, pipeline, later(60))
        assert stamps(lake, stream)[1:] == [at(110)]
    drained_at(spark, lake, pipeline, later(65))
    assert stamps(lake, stream)[2:] == [at(115)]
    first = read_first(spark, lake, view)
    assert tuples(first, "window_end", "readings") == [(at(10), 1), (at(60), 2)]

    run(spark, lake, pipeline, readings("a@125"))  # at NOW: a processing time that went back
    assert stamps(lake, stream)[3:] == [at(115)]
    assert tuples(late_pairs(read_log(spark, lake, stream), view)) == []

    # A row that moves nothing, and an end of input: the silence is counted from that row on all the same.
    land(stream.source.location(lake), readings("a@121"))
    drained_at(spark, lake, pipeline, later(100), end_of_input=True)
    assert stamps(lake, stream)[4:] == [at(120), at(130.001)]
    drained_at(spark, lake, pipeline, later(160 - MS))
    assert stamps(lake, stream)[6:] == []
    drained_at(spark, lake, pipeline, later(160))
    assert stamps(lake, stream)[6:] == [at(180)]
    assert clock_holds(spark, lake, pipeline)


def test_s14_the_last_windows_of_a_burst_are_out_soon_and_the_next_burst_a_day_later_is_not_late(
    spark: SparkSession, lake: Lake
) -> None:
    """Event time is the time of day, in minutes: a delay of one minute, and a silence counts from two minutes on."""
    stream = replace(metrics.metrics, clock=BoundedOutOfOrderness("1 minute", heartbeat_after="2 minutes"))
    view = replace(metrics.by_5_minutes, of=stream)
    pipeline = Pipeline(stream, (view,))

    def minute(minutes: float) -> datetime:
        return at(60 * minutes)

    def segments(*minutes: float) -> list[dict[str, object]]:
        given = {"type": "cpu", "source": "a", "value": 1.0}
        return [{**given, "ts": minute(each).isoformat()} for each in minutes]

    def published() -> list[datetime]:
        return [row[0] for row in tuples(read_first(spark, lake, view), "window_end")]

    land(stream.source.location(lake), segments(1, 60, 123))
    drained_at(spark, lake, pipeline, minute(123))  # 2:03; the clock is at 2:02
    assert published() == [minute(5), minute(65)]
    drained_at(spark, lake, pipeline, minute(125) - timedelta(milliseconds=1))
    assert published() == [minute(5), minute(65)]
    drained_at(spark, lake, pipeline, minute(128))
    assert published() == [minute(5), minute(65), minute(125)]
    drained_at(spark, lake, pipeline, minute(24 * 60 + 1))  # the silence goes on until the next burst
    land(stream.source.location(lake), segments(24 * 60 + 1))
    drained_at(spark, lake, pipeline, minute(24 * 60 + 1))
    assert stamps(lake, stream) == [None, minute(127), minute(24 * 60), minute(24 * 60)]
    assert tuples(late_pairs(read_log(spark, lake, stream), view)) == []


@pytest.mark.long
def test_a_delay_raised_in_mid_stream_loses_nothing_doubles_nothing_and_takes_no_stamp_back(
    spark: SparkSession, lake: Lake
) -> None:
    before = late_counts.pipeline
    patient = replace(before.stream, clock=replace(before.stream.clock, delay="15 seconds"))
    after = Pipeline(patient, tuple(replace(view, of=patient) for view in before.views))

    run(spark, lake, before, readings("a@1, a@16"))  # watermark 11: the window that ends at 10 is published
    run(spark, lake, after, readings("a@12, a@20"))  # 20 - 15 lies before it, so it stays at 11; a@12 is not late
    run(spark, lake, after, readings("a@9, a@36"))  # a@9 is late; watermark 21: the window that ends at 20 is published
    run(spark, lake, after, readings("a@22"), end_of_input=True)

    assert stamps(lake, patient)[:4] == [None, at(11), at(11), at(21)]
    view = after.views[0]
    assert tuples(read_first(spark, lake, view), "id", "window_end", "readings") == [
        ("a", at(10), 1),
        ("a", at(20), 2),
        ("a", at(30), 2),
        ("a", at(40), 1),
    ]
    assert tuples(late_pairs(read_log(spark, lake, patient), view), "event_time") == [(at(9),)]
    assert clock_holds(spark, lake, after)


@pytest.mark.long
def test_a_punctuated_clock_waits_for_each_partitions_first_mark(spark: SparkSession, lake: Lake) -> None:
    stream = replace(silent_partition.gateway_readings, clock=Punctuated("id = 'mark'"))
    pipeline = Pipeline(stream, (replace(silent_partition.gateway_by_10_seconds, of=stream),))
    landing = stream.source.location(lake)
    land(landing, readings("mark@20"), name="p0-1.json")
    land(landing, [*readings("a@50"), "{oops"], name="p1-1.json")
    land(landing, ["{"], name="p2-1.json")  # nothing valid: a partition nobody waits for
    land(landing, readings("mark@15, a@90"), name="p1-2.json")

    run(spark, lake, pipeline)

    batches = read_batches(lake, stream)[::-1]
    assert [dict(batch.summary.greatest) for batch in batches] == [{"p0": at(20), "p1": None}, {"p1": at(15)}]
    assert stamps(lake, stream) == [None, None]
    assert history(lake, stream)[-1].after == at(15)

"""The clock to the millisecond: which instant moves it, which silence, and what is too far from now to be believed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest
from pyspark.sql import SparkSession

from docs.examples import iso_events
from docs.examples.late_counts import readings as stream
from streaming import Ascending, BoundedOutOfOrderness, Clock, Files, Punctuated
from streaming.base.errors import DeclarationError
from streaming.base.intervals import END_OF_EVENT_TIMES, MICROSECOND, to_micros
from streaming.clocks.clock import BatchSummary, ClockState, clock_from_json
from streaming.lake.lake import Lake
from streaming.log.read import read_log
from streaming.log.validate import RowValidator
from tests.support.instants import NOW, at, ms
from tests.support.runs import run, tuples
from tidemark.testing import line

MS = timedelta(milliseconds=1)
FIRST_INSTANT = datetime.min.replace(tzinfo=UTC)


def batch(times: Mapping[str, float | None], now: float = 0, rows: int | None = None) -> BatchSummary:
    """A batch read `now` seconds after NOW: per partition its greatest event time (None: no row moves the clock)."""
    greatest = {partition: None if seconds is None else at(seconds) for partition, seconds in times.items()}
    return BatchSummary(greatest, len(times) if rows is None else rows, NOW + timedelta(seconds=now))


def tick(now: float) -> BatchSummary:
    """Nothing has come by `now` seconds after NOW."""
    return batch({}, now)


def watermarks(clock: Clock, *timeline: BatchSummary) -> list[datetime | None]:
    """The watermark after each entry of the timeline."""
    states = accumulate(timeline, clock.advance, initial=ClockState())
    return [clock.watermark(state) for state in states][1:]


def test_the_watermark_stays_behind_the_greatest_event_time_by_the_delay() -> None:
    timeline = [
        tick(0),  # nothing valid yet: no watermark
        batch({"": 20}),
        tick(0),
        batch({"": 12}),  # behind the greatest: the watermark stays
        batch({"": 20.001}),
    ]
    assert watermarks(BoundedOutOfOrderness("5 seconds"), *timeline) == [None, at(15), at(15), at(15), at(15.001)]
    assert watermarks(Ascending(), *timeline) == [None, at(20), at(20), at(20), at(20.001)]


def test_partitions_that_have_ended_hold_the_watermark_no_more_and_do_not_move_it_back() -> None:
    ended = replace(tick(1), partitions_end=True)
    timeline = [
        batch({"a": 20, "b": 30}),
        ended,
        ended,  # the same again changes nothing
        batch({"c": 10}),
        batch({"c": 40}),
        batch({"a": 35}),  # whoever comes again counts again
        batch({"c": 50}),
    ]
    expected = [at(20), at(20), at(20), at(20), at(40), at(40), at(40)]
    for clock in (Ascending(), Ascending(idle_after="1 hour", heartbeat_after="1 hour")):
        assert watermarks(clock, *timeline) == expected
    assert BatchSummary.from_json(json.loads(json.dumps(ended.to_json()))) == ended


def test_the_slowest_partition_holds_the_watermark_and_a_new_one_does_not_move_it_back() -> None:
    timeline = [
        batch({"p0": 10}),
        batch({"p0": 20, "p1": 7}),  # p1 was not known before and is behind
        batch({"p1": 15}),
        batch({"p0": 90}),  # p1 is silent, and may be so for ever
        tick(10**6),
    ]
    assert watermarks(Ascending(), *timeline) == [at(10), at(10), at(15), at(15), at(15)]


def test_a_partition_with_a_delay_of_its_own_holds_the_watermark_by_that_one() -> None:
    clock = BoundedOutOfOrderness("5 seconds", delays={"slow": "60 seconds"})
    assert watermarks(clock, batch({"p0": 100}), batch({"slow": 100}), batch({"slow": 200})) == [at(95), at(95), at(95)]
    assert watermarks(clock, batch({"p0": 100, "slow": 120}), batch({"slow": 150})) == [at(60), at(90)]


def test_a_partition_that_was_removed_counts_no_more_and_its_rows_move_no_clock() -> None:
    clock = BoundedOutOfOrderness("5 seconds")
    state = clock.advance(ClockState(), batch({"p0": 100, "gone": 10}))
    assert state.watermark == at(5)
    without = replace(clock, removed=("gone",))
    state = without.advance(state, batch({"p0": 110}))
    assert state.watermark == at(105)
    assert without.advance(state, batch({"gone": 500})).watermark == at(105)
    assert clock_from_json(json.loads(json.dumps(without.to_json()))) == without


def test_a_partition_is_idle_from_exactly_idle_after_on_and_rejoins_with_its_next_row() -> None:
    timeline = [
        batch({"p0": 10, "p1": 3}),
        batch({"p0": 20}, now=60),
        tick(119.999),
        tick(120),  # two minutes without p1
        batch({"p1": 8}, now=130),  # it counts again; the watermark does not go back to 8
        batch({"p0": 30}, now=140),
        batch({"p1": 25}, now=150),
        tick(260),  # p0 has been silent for two minutes, p1 for less
        tick(270),  # both are idle
    ]
    expected = [at(3), at(3), at(3), at(20), at(20), at(20), at(25), at(25), at(25)]
    assert watermarks(Ascending(idle_after="2 minutes"), *timeline) == expected


def test_rejected_rows_keep_a_source_alive_but_not_its_partition() -> None:
    rejected = batch({}, now=120, rows=1)
    rows = [batch({"p0": 9, "p1": 3}), batch({"p0": 10}, now=1), rejected]
    assert watermarks(Ascending(idle_after="2 minutes"), *rows)[-1] == at(10)
    assert watermarks(Ascending(heartbeat_after="2 minutes"), *rows, tick(239.999))[-1] == at(3)
    assert watermarks(Ascending(heartbeat_after="2 minutes"), *rows, tick(240))[-1] == at(3 + 120)


def test_silence_moves_the_watermark_on_by_the_time_passed_since_the_last_row() -> None:
    clock = BoundedOutOfOrderness("5 seconds", heartbeat_after="1 minute")
    timeline = [
        tick(0),
        tick(3600),  # no row has ever come: there is nothing to move on from
        batch({"": 20}, now=3600),
        tick(3659.999),
        tick(3660),  # exactly heartbeat_after: the minute counts
        tick(3661),
        batch({"": 30}, now=3662),  # rows again; the watermark does not go back
        tick(3722),
        tick(3662 + 7 * 86_400),  # a week in which no process ran
    ]
    expected = [None, None, at(15), at(15), at(75), at(76), at(76), at(136), at(76 + 7 * 86_400)]
    assert watermarks(clock, *timeline) == expected
    assert watermarks(replace(clock, heartbeat_after=None), *timeline)[-1] == at(25)


def test_silence_brings_the_watermark_of_a_live_source_to_processing_time_less_the_delay() -> None:
    clock, noon = BoundedOutOfOrderness("5 seconds", heartbeat_after="1 minute"), (NOW - at(0)).total_seconds()
    live = [batch({"": noon}), batch({"": noon + 10}, now=10), tick(70), tick(100)]
    assert watermarks(clock, *live)[-2:] == [NOW + timedelta(seconds=65), NOW + timedelta(seconds=95)]


def test_silence_moves_the_watermark_on_from_where_idle_partitions_held_it_when_the_last_row_came() -> None:
    clock = Ascending(idle_after="1 minute", heartbeat_after="2 minutes")
    timeline = [
        batch({"p0": 10, "p1": 3}),
        batch({"p0": 20}, now=30),  # p1 holds it
        tick(60),  # p1 is idle
        tick(149.999),
        tick(150),  # two minutes since the last row
    ]
    assert watermarks(clock, *timeline) == [at(3), at(3), at(20), at(20), at(3 + 120)]


def test_an_end_of_input_does_not_change_from_where_silence_moves_the_watermark_on() -> None:
    clock = Ascending(heartbeat_after="1 minute")
    ended = clock.advance(ClockState(), batch({"": 10})).closed_at(at(1000))
    again = clock.advance(ended, batch({"": 20}, now=30))
    assert [clock.advance(again, tick(now)).watermark for now in (90, 1010, 1011)] == [at(1000), at(1000), at(1001)]


def test_silence_before_a_mark_has_come_moves_nothing() -> None:
    clock = Punctuated("id = 'a'", heartbeat_after="1 minute")
    timeline = [batch({"": None}), tick(60), batch({"": 10}, now=70), tick(130)]
    assert watermarks(clock, *timeline) == [None, None, at(10), at(70)]


def test_rows_that_do_not_move_the_clock_hold_it_until_one_of_their_partition_does() -> None:
    timeline = [
        batch({"p0": None}),
        batch({"p0": 50}),
        batch({"p0": 90, "p1": None}),  # p1 has rows, but none of them has moved the clock
        batch({"p1": 70}),
    ]
    assert watermarks(Punctuated("id = 'a'", delay="1 second"), *timeline) == [None, at(49), at(49), at(69)]


def test_silence_counts_from_the_first_look_where_the_log_is_older_than_the_declaration() -> None:
    plain = Ascending().advance(ClockState(), batch({"p0": 10, "p1": 3}))
    stored = {name: value for name, value in plain.to_json().items() if name in ("greatest", "watermark")}
    state = ClockState.from_json(json.loads(json.dumps(stored)))
    assert state == plain
    clock = Ascending(idle_after="1 minute", heartbeat_after="1 hour")
    state = clock.advance(state, batch({"p0": 20}, now=500))
    assert state.watermark == at(3)
    assert clock.advance(state, tick(559.999)).watermark == at(3)
    state = clock.advance(clock.advance(state, batch({"p0": 30}, now=530)), tick(560))
    assert state.watermark == at(30)


def test_a_heartbeat_declared_in_the_middle_of_a_silence_counts_it_from_the_first_look() -> None:
    state = Ascending().advance(ClockState(), batch({"": 10}))
    clock = Ascending(heartbeat_after="1 minute")
    looked = clock.advance(state, tick(500))
    assert [clock.advance(looked, tick(now)).watermark for now in (559.999, 560)] == [at(10), at(70)]


def test_an_event_in_the_first_year_stops_the_watermark_at_the_first_instant() -> None:
    clock, row = BoundedOutOfOrderness("5 seconds"), BatchSummary({"": FIRST_INSTANT + 5 * MS}, 1, NOW)
    assert clock.advance(ClockState(), row).watermark == FIRST_INSTANT
    later = BatchSummary({"": FIRST_INSTANT + timedelta(seconds=5, milliseconds=1)}, 1, NOW)
    assert clock.advance(ClockState(), later).watermark == FIRST_INSTANT + MS


def test_the_end_of_input_moves_the_watermark_forward_only_and_later_rows_do_not_move_it_back() -> None:
    clock = BoundedOutOfOrderness("5 seconds", idle_after="1 minute")
    state = clock.advance(ClockState(), batch({"": 26}))
    assert state.closed_at(at(30)).watermark == at(30)
    assert state.closed_at(at(20)).watermark == at(21)
    assert ClockState().closed_at(at(30)).watermark == at(30)
    ended = state.closed_at(at(30))
    assert ended.last_valid_row_at == state.last_valid_row_at
    assert clock.advance(ended, batch({"": 31})).watermark == at(30)
    assert clock.advance(ended, batch({"": 36})).watermark == at(31)


def test_a_row_exactly_at_a_limit_is_believed_and_one_a_millisecond_beyond_is_not(spark: SparkSession) -> None:
    clock = BoundedOutOfOrderness("5 seconds", max_ahead="10 seconds", max_behind="1 hour")
    hour, seconds = timedelta(hours=1), timedelta(seconds=10)
    times = (NOW - hour - MS, NOW - hour, NOW + seconds, NOW + seconds + MS)
    payloads = [(line({"id": "a", "timestamp": ms(time)}), number) for number, time in enumerate(times)]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint")

    def reasons(clock: Clock) -> list[list[str] | None]:
        judged = RowValidator(replace(stream, clock=clock))(stream.format.parse(raw), NOW).orderBy("_origin").collect()
        return [row["_rejected"] for row in judged]

    behind = ["max_behind: event_time is more than 1 hour before its ingestion"]
    ahead = ["max_ahead: event_time is more than 10 seconds after its ingestion"]
    assert reasons(clock) == [behind, None, None, ahead]
    assert reasons(replace(clock, max_behind=None)) == [None, None, None, ahead]


def test_an_event_may_lie_in_any_year_from_100_to_9899_and_what_lies_outside_stops_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    pipeline = iso_events.pipeline
    patient = replace(pipeline.stream, clock=Ascending(max_ahead="3000000 days"))
    valid = ("0100-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "9899-12-31T23:59:59.999999Z")
    outside = (
        "0099-12-31T23:59:59.999999Z",
        "9900-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",  # the zero date of Go and .NET
        "9999-12-31T23:59:59.999999Z",
    )
    no_instants = (
        "0001-01-01T00:00:00+01:00",  # an hour before the year 1 in UTC
        "-0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999999-00:01",
        "10000-01-01T00:00:00Z",
        "294247-01-10T04:00:54.775807Z",  # the last instant that Spark knows
    )
    texts = (*valid, *outside, *no_instants)
    payloads = [(line({"event_timestamp": text}), number) for number, text in enumerate(texts)]
    raw = spark.createDataFrame(payloads, "_raw binary, _origin bigint")
    validated = RowValidator(patient)(patient.format.parse(raw), NOW).orderBy("_origin")
    reasons = [
        *["event_time: event_timestamp lies outside the years 100 to 9899"] * len(outside),
        *(
            "type: event_timestamp is not ISO-8601 text with an offset, of the years 1 to 9999 in UTC, such as "
            f'2026-01-01T00:00:00Z, got "{text}"'
            for text in no_instants
        ),
    ]
    rows = validated.select("_rejected", "event_timestamp").toArrow().to_pylist()
    assert [row["_rejected"] for row in rows] == [None] * len(valid) + [[reason] for reason in reasons]
    assert [row["event_timestamp"] is None for row in rows] == [False] * len(valid) + [True] * len(reasons)

    # As a file of a stream; its clock calls the last year the future.
    run(spark, lake, pipeline, [{"event_timestamp": text} for text in (valid[-1], *outside, *no_instants)])
    logged = read_log(spark, lake, pipeline.stream)
    stored = tuples(logged.where("_origin is not null").selectExpr("unix_micros(event_timestamp)", "_rejected[0]"))
    ahead = "max_ahead: event_timestamp is more than 1 day after its ingestion"
    assert stored == [
        *((None, reason) for reason in sorted(reasons)),
        (to_micros(END_OF_EVENT_TIMES - MICROSECOND), ahead),
    ]


def test_the_group_of_a_files_path_names_its_partition(spark: SparkSession) -> None:
    paths = [("file:///lake/p1-1.json",), ("file:///p7/a%20b+%C3%BC-1.json",), ("file:///lake/other.json",)]
    origin = spark.createDataFrame(paths, "path string").selectExpr("struct(path) as _origin")

    def partitions(pattern: str | None) -> list[str]:
        named = origin.select(Files("landing", partition=pattern).partition_of(origin["_origin"]).alias("partition"))
        return [row["partition"] for row in named.collect()]

    assert partitions(r"/([^/]+)-[0-9]+\.json$") == ["p1", "a b+ü", ""]
    assert partitions(None) == ["", "", ""]


@pytest.mark.parametrize(
    ("declare", "refusal"),
    [
        (lambda: BoundedOutOfOrderness("soon"), "'soon' is not an interval"),
        (lambda: BoundedOutOfOrderness(""), "'' is not an interval"),
        (lambda: Ascending(max_ahead="later"), "'later' is not an interval"),
        (lambda: Ascending(max_behind=""), "'' is not an interval"),
        (lambda: Ascending(idle_after="0 seconds"), "idle_after='0 seconds' would call every source silent"),
        (lambda: Ascending(heartbeat_after="0 days"), "heartbeat_after='0 days' would call every source silent"),
        (lambda: Punctuated("id = ="), "cannot read the expression 'id = ='"),
        (
            lambda: replace(stream, clock=Punctuated("sensor = 'a'")),
            "the clock of stream 'readings' reads unknown column 'sensor' in \"sensor = 'a'\". Columns there are: id,",
        ),
        (lambda: Files("landing", partition="p[0-9]+"), "partition='p[0-9]+' has 0 groups; write one with exactly one"),
        (lambda: Files("landing", partition="(a)(b)"), "has 2 groups"),
        (lambda: Files("landing", partition="(?P<p>a)"), "has 1 groups, named as Java does not know it"),
        (lambda: Files("landing", partition="(a"), "partition='(a' is not a regular expression"),
    ],
)
def test_a_clock_that_cannot_work_is_refused_when_it_is_declared(declare: object, refusal: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()  # type: ignore[operator]
    assert refusal in str(refused.value)

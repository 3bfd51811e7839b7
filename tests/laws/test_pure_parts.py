"""Clock, intervals and windows in many cases against the oracle's arithmetic; Spark once, for all windows at once."""

from __future__ import annotations

import json
from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import BoundedOutOfOrderness, Tumbling
from streaming.clock import BatchSummary, ClockState
from streaming.intervals import from_micros, interval, to_micros
from tests.laws.oracle import EPOCH, SECOND, Event, Row, Timeline, Verdict, View, day_of, micros
from tests.laws.readings import NOW, VIEWS
from tests.laws.strategies import GRAINS, feeds, generated, lines, times

INSTANTS = st.integers(0, 4_000_000_000 * SECOND)
GREATEST = st.dictionaries(st.just(""), INSTANTS, max_size=1)
UNITS = {"millisecond": 1_000, "second": SECOND, "minute": 60 * SECOND, "hour": 3_600 * SECOND, "day": 86_400 * SECOND}
INTERVALS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(sorted(UNITS)), st.booleans()), min_size=1, max_size=3
)

many = settings(max_examples=300, derandomize=True, database=None, deadline=None)


def summary(greatest: dict[str, int], rows: int = 1) -> BatchSummary:
    return BatchSummary({partition: from_micros(at) for partition, at in greatest.items()}, rows, NOW)


@many
@given(st.lists(GREATEST, max_size=6), st.integers(0, 100 * SECOND // 1_000))
def test_the_watermark_is_the_greatest_event_time_so_far_less_the_delay(batches: list[dict[str, int]], ms: int) -> None:
    clock, state, seen = BoundedOutOfOrderness(f"{ms} milliseconds"), ClockState(), list[int]()
    for greatest in batches:
        before = clock.watermark(state)
        state = clock.advance(state, summary(greatest))
        seen += greatest.values()
        mark = clock.watermark(state)
        assert (None if mark is None else micros(mark)) == (max(seen) - ms * 1_000 if seen else None)
        assert before is None or (mark is not None and mark >= before)


@many
@given(GREATEST, INSTANTS, st.lists(GREATEST, max_size=3))
def test_an_end_of_input_moves_the_watermark_forward_for_good(
    first: dict[str, int], end: int, later: list[dict[str, int]]
) -> None:
    clock = BoundedOutOfOrderness("5 seconds")
    state = clock.advance(ClockState(), summary(first)).closed_at(from_micros(end))
    reached = [end, *(at - 5 * SECOND for at in first.values())]
    for greatest in later:
        state = clock.advance(state, summary(greatest))
        reached += [at - 5 * SECOND for at in greatest.values()]
    assert state.watermark == from_micros(max(reached))


@many
@given(GREATEST, st.one_of(st.none(), INSTANTS), st.integers(0, 10**9))
def test_clock_and_summary_come_back_from_the_commit_as_they_went_in(
    greatest: dict[str, int], watermark: int | None, rows: int
) -> None:
    state = ClockState(summary(greatest).greatest, None if watermark is None else from_micros(watermark))
    assert ClockState.from_json(json.loads(json.dumps(state.to_json()))) == state
    told = summary(greatest, rows)
    assert BatchSummary.from_json(json.loads(json.dumps(told.to_json()))) == told


@many
@given(INTERVALS)
def test_an_interval_is_the_sum_of_its_parts(parts: list[tuple[int, str, bool]]) -> None:
    text = " ".join(f"{number} {unit}{'s' if plural else ''}" for number, unit, plural in parts)
    assert interval(text) == timedelta(microseconds=sum(number * UNITS[unit] for number, unit, _ in parts))


@many
@given(st.integers(-62_135_596_800 * SECOND, 253_402_300_799 * SECOND))
def test_microseconds_and_instants_are_the_same_thing(at: int) -> None:
    assert from_micros(at) == EPOCH + timedelta(microseconds=at)
    assert to_micros(from_micros(at)) == at


def test_windows_and_their_lateness_are_the_oracles_to_the_microsecond(spark: SparkSession) -> None:
    declared = {
        "1 millisecond": (1_000, "0 seconds", 0),
        "7 seconds": (7 * SECOND, "3 seconds", 3 * SECOND),
        "10 seconds": (10 * SECOND, "0 seconds", 0),
        "90 minutes": (5_400 * SECOND, "15 minutes", 900 * SECOND),
        "1 day": (86_400 * SECOND, "5 hours", 18_000 * SECOND),
    }
    pairs = generated(
        st.tuples(times(micros(NOW)), st.sampled_from((*GRAINS, None)), st.integers(-2, 2), st.sampled_from((0, 3))),
        400,
    )
    step = 10 * SECOND
    events = sorted(
        {
            (at, None if grain is None else (at // step + steps) * step + shift * SECOND + grain)
            for at, grain, steps, shift in pairs
        },
        key=str,
    )
    # Every window's own end as the stamp too, and the two instants next to it.
    for size, _, offset in declared.values():
        events += [
            (at, end + grain)
            for at, _ in events[:40]
            for end in [View("", False, size, offset, bool).window(at)[1]]
            for grain in (-1, 0, 1)
        ]
    at, stamp = F.timestamp_micros("at"), F.timestamp_micros("stamp")
    windows = {name: Tumbling(name, offset) for name, (_, offset, _) in declared.items()}
    frame = spark.createDataFrame(events, "at bigint, stamp bigint")
    # Only one time window per select.
    for name, window in windows.items():
        frame = (
            frame.withColumn("w", window.assign(at))
            .withColumn(
                name,
                F.struct(F.unix_micros("w.start"), F.unix_micros("w.end"), window.late_windows(at, stamp)),
            )
            .drop("w")
        )
    for row in frame.collect():
        for name, (size, _, offset) in declared.items():
            view = View(name, False, size, offset, lambda event: True)
            bounds = view.window(row["at"])
            late = Row(b"", "", 0, 0, row["stamp"], Verdict(Event(None, row["at"], None))).is_late(view)
            assert tuple(row[name]) == (*bounds, int(late)), (name, row["at"], row["stamp"])


def test_the_feeds_of_the_laws_are_rich() -> None:
    """Guards against laws that hold because nothing happened."""
    for feed in generated(feeds(), 6)[1:]:
        line = Timeline(micros(NOW), VIEWS)
        for files in feed.drains:
            for number, payloads in enumerate(files):
                line.batch([(str(number), payloads)])
            line.settle()
        line.end_of_input()
        assert len(line.events()) >= 10
        assert sum(bool(row.verdict.reasons) for row in line.rows) >= 2
        for view in VIEWS:
            assert line.late(view) and line.first(view) and len(line.current(view)) > len(line.first(view))


def test_the_day_of_an_instant_is_its_utc_date() -> None:
    assert [str(day_of(at)) for at in (-1, 0)] == ["1969-12-31", "1970-01-01"]
    assert all(b"\n" not in line for line in generated(lines(), 300))

"""What another delay would have meant, predicted from a log, against a replay event by event from Flink's rules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base.intervals import from_micros, interval
from streaming.clocks.clock import BatchSummary, BoundedOutOfOrderness, ClockState
from streaming.lateness.profile import friendly, needed_delays
from streaming.lateness.replay import NEVER, Counts, outcome, replay
from streaming.log.batches import Batch
from tests.support.examples import many

SIZE = 10_000
MS = 1_000


@dataclass(frozen=True)
class Event:
    """Key and event time in ms of a row; its windows are 10 s long."""

    key: str
    at: int

    @property
    def end(self) -> int:
        return self.at // SIZE * SIZE + SIZE


Arrivals = tuple[tuple[Event, ...] | None, ...]
"""Batches in the order in which they came; None is an end of input."""

EVENTS = st.builds(Event, st.sampled_from("ab"), st.integers(0, 60_000))
ARRIVALS = st.lists(
    st.one_of(st.lists(EVENTS, max_size=6).map(tuple), st.lists(EVENTS, max_size=6).map(tuple), st.none()), max_size=8
).map(tuple)
SILENCES = st.lists(
    st.tuples(st.sampled_from((0, 9_999, 10_000, 60_000)), st.none() | st.integers(0, 60_000)), max_size=8
)
"""Pause in ms, and the event time of the row that ends it; None is a heartbeat."""

DELAYS = st.one_of(st.sampled_from((0, 1, 5_000, SIZE - 1, SIZE, SIZE + 1)), st.integers(0, 70_000))


@dataclass
class Seen:
    """What the oracle saw with a delay."""

    pairs: int
    late: int
    waits: list[int]
    open: list[int]


def watched(arrivals: Arrivals, delay: int) -> Seen:
    """The rules for one event after the other: late iff its window's end is at or behind the watermark at its batch."""
    greatest: int | None = None
    watermark: int | None = None
    latest_end: int | None = None
    tally = Seen(0, 0, [], [])
    opened: set[tuple[str, int]] = set()

    def advanced() -> None:
        nonlocal watermark
        marks = [mark for mark in (watermark, None if greatest is None else greatest - delay) if mark is not None]
        watermark = max(marks, default=None)
        for group in sorted(opened):
            if watermark is not None and group[1] <= watermark:
                opened.remove(group)
                # Only what the events themselves have closed has waited; the rest was cut off by the end of input.
                if greatest is not None and greatest - delay >= group[1]:
                    tally.waits.append(greatest - group[1])

    for batch in arrivals:
        advanced()
        if batch is None:
            # The latest end of any window so far, if the clock has not passed it.
            if latest_end is not None and watermark is not None:
                watermark = max(watermark, latest_end)
            advanced()
            continue
        for event in batch:
            tally.pairs += 1
            if watermark is not None and event.end <= watermark:
                tally.late += 1
            else:
                opened.add((event.key, event.end))
        tally.open.append(len(opened))
        for event in batch:
            greatest = event.at if greatest is None else max(greatest, event.at)
            latest_end = event.end if latest_end is None else max(latest_end, event.end)
    advanced()
    return tally


def logged(arrivals: Arrivals, delay: int) -> list[Batch]:
    """The batches that a log with the clock of that delay holds after these arrivals."""
    clock, state, batches, latest_end = clock_of(delay), ClockState(), list[Batch](), None
    for number, rows in enumerate(arrivals):
        now = from_micros(number)
        if rows is None:
            state = (
                state.closed_at(from_micros(latest_end * MS)) if latest_end is not None and state.watermark else state
            )
            summary = BatchSummary({}, 0, now)
        else:
            greatest = {"": from_micros(max(row.at for row in rows) * MS)} if rows else {}
            summary = BatchSummary(greatest, max(len(rows), 1), now)
        query = None if rows is None else "q"
        batches.append(Batch(number, query, number, state, summary, clock, end_of_input=rows is None))
        state = clock.advance(state, summary)
        latest_end = max([row.end for row in rows or ()] + ([] if latest_end is None else [latest_end]), default=None)
    return batches


def clock_of(delay: int) -> BoundedOutOfOrderness:
    return BoundedOutOfOrderness(f"{delay} milliseconds")


def beating(delay: int) -> BoundedOutOfOrderness:
    return replace(clock_of(delay), heartbeat_after="10 seconds")


def logged_through(silences: list[tuple[int, int | None]], delay: int) -> list[Batch]:
    """The log of a clock that silence moves: after each pause a row, by its event time in ms, or a heartbeat."""
    clock, state, batches, now = beating(delay), ClockState(), list[Batch](), 0
    for number, (pause, event_time) in enumerate(silences):
        now += pause
        greatest = {} if event_time is None else {"": from_micros(event_time * MS)}
        summary = BatchSummary(greatest, len(greatest), from_micros(now * MS))
        if not summary.rows:
            state = clock.advance(state, summary)
        batches.append(Batch(number, "q" if summary.rows else None, number, state, summary, clock))
        state = clock.advance(state, summary)
    return batches


def rows_of(arrivals: Arrivals) -> Iterator[tuple[int, Event]]:
    return ((number, event) for number, batch in enumerate(arrivals) for event in batch or ())


def pairs_of(arrivals: Arrivals) -> Counts:
    return Counts.of([(number, event.end * MS, 1) for number, event in rows_of(arrivals)])


def groups_of(arrivals: Arrivals) -> Counts:
    first: dict[tuple[str, int], int] = {}
    for number, event in rows_of(arrivals):
        first.setdefault((event.key, event.end), number)
    return Counts.of([(number, end * MS, 1) for (_, end), number in first.items()])


@many
@given(ARRIVALS, DELAYS, DELAYS)
def test_a_delay_is_predicted_exactly_from_the_log_of_another_delay(arrivals: Arrivals, had: int, asked: int) -> None:
    predicted = outcome(
        clock_of(had),
        f"{asked} milliseconds",
        logged(arrivals, had),
        pairs_of(arrivals),
        groups_of(arrivals),
    )

    tally = watched(arrivals, asked)
    assert (predicted.pairs, predicted.late, predicted.results) == (tally.pairs, tally.late, len(tally.waits))
    assert predicted.max_open == max(tally.open, default=0)
    assert predicted.mean_open == pytest.approx(sum(tally.open) / len(tally.open) if tally.open else 0.0)
    if tally.waits:
        assert predicted.max_wait == timedelta(milliseconds=max(tally.waits))
        assert predicted.mean_wait is not None
        mean = Fraction(sum(tally.waits), len(tally.waits))
        assert predicted.mean_wait / timedelta(milliseconds=1) == pytest.approx(float(mean), abs=0.002)
    else:
        assert (predicted.mean_wait, predicted.max_wait) == (None, None)


@many
@given(SILENCES, DELAYS, DELAYS)
def test_the_stamps_of_another_delay_are_predicted_exactly_through_silence(
    silences: list[tuple[int, int | None]], had: int, asked: int
) -> None:
    predicted = replay(beating(had), f"{asked} milliseconds", logged_through(silences, had))
    stamps = [batch.state.watermark for batch in logged_through(silences, asked)]
    assert [None if mark == NEVER else from_micros(mark) for mark in predicted.watermark[:-1].tolist()] == stamps


@many
@given(ARRIVALS, DELAYS, st.sampled_from((0.1, 0.5, 0.9, 0.99, 1.0)))
def test_the_quantile_is_the_smallest_delay_that_reaches_the_share(arrivals: Arrivals, had: int, share: float) -> None:
    needed = needed_delays(replay(clock_of(had), "0 seconds", logged(arrivals, had)), pairs_of(arrivals))

    def on_time(delay: int) -> int:
        tally = watched(arrivals, delay)
        return tally.pairs - tally.late

    quantile, total = needed.quantile(share), watched(arrivals, 0).pairs
    assert needed.total == total
    if quantile is None:
        assert on_time(10**9) < share * total
        return
    delay = quantile // timedelta(milliseconds=1)
    assert on_time(delay) >= share * total
    assert delay == 0 or on_time(delay - 1) < share * total
    assert needed.share_on_time(quantile) == (on_time(delay) / total if total else 1.0)


@many
@given(st.integers(0, 200 * 86_400_000))
def test_a_friendly_delay_is_as_long_or_longer_by_at_most_three_halves_or_a_second(millis: int) -> None:
    delay = timedelta(milliseconds=millis)
    written = interval(friendly(delay))
    assert delay <= written <= max(2.5 * delay, timedelta(seconds=1))
    assert interval(friendly(written)) == written


def test_nothing_in_the_log_is_nothing_late() -> None:
    nothing = Counts.of([])
    predicted = outcome(clock_of(5_000), "1 second", [], nothing, nothing)
    assert (predicted.pairs, predicted.late, predicted.results, predicted.max_open) == (0, 0, 0, 0)
    assert predicted.share_on_time == 1.0

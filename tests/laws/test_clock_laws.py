"""The clock in many cases against Flink's published semantics, event by event, and cut at batches.

The oracle is written from the documented behaviour of `BoundedOutOfOrdernessWatermarks`, `WatermarksWithIdleness` and
`WatermarkOutputMultiplexer`, one object per source partition, instants in whole microseconds, and watermarks in whole
milliseconds, as are Flink's, whose event times know no less. What differs on purpose:
the watermark has no extra millisecond below it, it stays where all partitions are idle, a partition is idle from
exactly the limit on, and both are looked at when a batch ends. Silence moves the watermark as bytewax's `EventClock`
does: on, by the processing time that has passed since the last row.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from streaming import Ascending, BoundedOutOfOrderness, Clock, Punctuated
from streaming.base.intervals import FIRST_INSTANT, LAST_MILLISECOND
from streaming.clocks.clock import BatchSummary, ClockState
from tests.laws.clocks import whole_millisecond_before
from tests.support.examples import many

ZERO = datetime(2026, 1, 1, tzinfo=UTC)
DELAYS = {"0 seconds": 0, "5 milliseconds": 5_000, "20 milliseconds": 20_000}
SILENCES = {None: None, "10 milliseconds": 10_000, "25 milliseconds": 25_000}
# Few values close to one another, so that equality and exact limits come often.
TIMES = st.integers(-40, 40).map(lambda steps: steps * 1_000) | st.integers(-40_000, 40_000)


@dataclass(frozen=True)
class Event:
    """A valid row: its partition, its event time, and whether it is a mark that moves a punctuated clock."""

    partition: str
    at: int
    is_mark: bool


@dataclass(frozen=True)
class Cut:
    """What one batch brings: events, rejected rows, and how long after the batch before it it is read."""

    events: tuple[Event, ...]
    rejected: int
    pause: int


events = st.builds(Event, st.sampled_from(("", "p1", "ü")), TIMES, st.booleans())
cuts = st.builds(
    Cut,
    st.lists(events, max_size=4).map(tuple),
    st.sampled_from((0, 0, 1)),
    st.sampled_from((0, 1_000, 9_999, 10_000, 24_999, 25_000, 60_000)),
)
histories = st.lists(cuts, max_size=8)


@dataclass(frozen=True)
class Strategy:
    """A clock as the oracle knows it, and as it is declared."""

    delay: int
    idle_after: int | None
    heartbeat_after: int | None
    marks_only: bool
    declared: Clock


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    """Any of the clocks."""
    kind = draw(st.sampled_from((BoundedOutOfOrderness, Ascending, Punctuated)))
    delay = "0 seconds" if kind is Ascending else draw(st.sampled_from(sorted(DELAYS)))
    idle, beat = (draw(st.sampled_from(list(SILENCES))) for _ in range(2))
    if kind is Ascending:
        declared: Clock = Ascending(idle_after=idle, heartbeat_after=beat)
    elif kind is Punctuated:
        declared = Punctuated("is_mark", delay=delay, idle_after=idle, heartbeat_after=beat)
    else:
        declared = BoundedOutOfOrderness(delay, idle_after=idle, heartbeat_after=beat)
    return Strategy(DELAYS[delay], SILENCES[idle], SILENCES[beat], kind is Punctuated, declared)


@dataclass
class Output:
    """One source partition: its generator's greatest time, its own watermark, and when it was last active."""

    greatest: int | None = None
    watermark: int | None = None
    active_at: int = 0
    is_idle: bool = False

    def on_event(self, event: Event, now: int, strategy: Strategy) -> None:
        """A generator takes the event's time; any event, also one that moves nothing, is activity."""
        self.active_at = now
        if event.is_mark or not strategy.marks_only:
            self.greatest = event.at if self.greatest is None else max(self.greatest, event.at)

    def on_periodic_emit(self, now: int, strategy: Strategy) -> None:
        """Marks itself idle, or emits."""
        self.is_idle = strategy.idle_after is not None and now - self.active_at >= strategy.idle_after
        if not self.is_idle and self.greatest is not None:
            emitted = whole_millisecond_before(self.greatest - strategy.delay)
            self.watermark = emitted if self.watermark is None else max(self.watermark, emitted)


@dataclass
class Multiplexer:
    """The combined watermark: the least over the outputs that are not idle; with all idle it stays where it is."""

    strategy: Strategy
    outputs: dict[str, Output] = field(default_factory=dict)
    combined: int | None = None
    last_row_at: int = 0
    combined_at_last_row: int | None = None

    def end_of_batch(self, cut: Cut, now: int) -> int | None:
        """The watermark once the batch read at `now` is through."""
        for event in cut.events:
            self.outputs.setdefault(event.partition, Output()).on_event(event, now, self.strategy)
        for output in self.outputs.values():
            output.on_periodic_emit(now, self.strategy)
        active = [output.watermark for output in self.outputs.values() if not output.is_idle]
        if active and None not in active:
            self._emit(min(mark for mark in active if mark is not None))
        beat = self.strategy.heartbeat_after
        if cut.events or cut.rejected:
            self.last_row_at, self.combined_at_last_row = now, self.combined
        elif beat is not None and now - self.last_row_at >= beat and self.combined_at_last_row is not None:
            self._emit(whole_millisecond_before(self.combined_at_last_row + now - self.last_row_at))
        return self.combined

    def _emit(self, watermark: int) -> None:
        self.combined = watermark if self.combined is None else max(self.combined, watermark)


def instant(micros: int) -> datetime:
    return ZERO + timedelta(microseconds=micros)


def summaries(strategy: Strategy, history: list[Cut]) -> list[tuple[Cut, int, BatchSummary]]:
    """Each cut, when it is read, and what the clock learns of it."""
    entries, now = [], 0
    for cut in history:
        now += cut.pause
        greatest: dict[str, datetime | None] = {}
        for partition in sorted({event.partition for event in cut.events}):
            moving = [
                event.at
                for event in cut.events
                if event.partition == partition and (event.is_mark or not strategy.marks_only)
            ]
            greatest[partition] = instant(max(moving)) if moving else None
        rows = len(cut.events) + cut.rejected
        entries.append((cut, now, BatchSummary(greatest, rows, instant(now))))
    return entries


def states(strategy: Strategy, history: list[Cut]) -> list[ClockState]:
    """The clock before the first batch and after each."""
    steps: Callable[[ClockState, BatchSummary], ClockState] = strategy.declared.advance
    return list(accumulate((summary for _, _, summary in summaries(strategy, history)), steps, initial=ClockState()))


@many
@given(strategies(), histories)
def test_the_watermark_is_flinks_after_every_batch(strategy: Strategy, history: list[Cut]) -> None:
    oracle, state = Multiplexer(strategy), ClockState()
    for cut, now, summary in summaries(strategy, history):
        state = strategy.declared.advance(state, summary)
        expected = oracle.end_of_batch(cut, now)
        assert strategy.declared.watermark(state) == (None if expected is None else instant(expected))


@many
@given(strategies(), histories)
def test_the_watermark_never_goes_back_and_never_becomes_null_again(strategy: Strategy, history: list[Cut]) -> None:
    watermarks = [state.watermark for state in states(strategy, history)]
    instants = [watermark for watermark in watermarks if watermark is not None]
    assert instants == sorted(instants)
    assert watermarks == [None] * (len(watermarks) - len(instants)) + instants


@many
@given(strategies(), histories, st.integers(0, 8))
def test_a_restart_from_any_stored_state_goes_on_as_if_it_had_never_happened(
    strategy: Strategy, history: list[Cut], restart: int
) -> None:
    whole = states(strategy, history)
    restart = min(restart, len(history))
    stored = ClockState.from_json(json.loads(json.dumps(whole[restart].to_json())))
    rest = [json.dumps(summary.to_json()) for _, _, summary in summaries(strategy, history)[restart:]]
    replayed = (BatchSummary.from_json(json.loads(text)) for text in rest)
    assert stored == whole[restart]
    assert reduce(strategy.declared.advance, replayed, stored) == whole[-1]


@many
@given(strategies(), histories, st.sampled_from((0, 9_999, 10_000, 25_000, 10**9)))
def test_the_same_tick_again_changes_nothing(strategy: Strategy, history: list[Cut], silence: int) -> None:
    state, clock = states(strategy, history)[-1], strategy.declared
    now = instant(sum(cut.pause for cut in history) + silence)
    once = clock.advance(state, BatchSummary({}, 0, now))
    assert clock.advance(once, BatchSummary({}, 0, now)) == once
    assert state.watermark is None or (once.watermark is not None and once.watermark >= state.watermark)


@many
@given(strategies(), histories, TIMES, st.lists(cuts, max_size=3))
def test_an_end_of_input_is_the_least_that_the_watermark_can_be_from_then_on(
    strategy: Strategy, history: list[Cut], end: int, later: list[Cut]
) -> None:
    going_on = [summary for _, _, summary in summaries(strategy, history + later)[len(history) :]]
    open_ended = states(strategy, history + later)[-1].watermark
    ended = reduce(strategy.declared.advance, going_on, states(strategy, history)[-1].closed_at(instant(end)))
    closed = instant(-whole_millisecond_before(-end))
    assert ended.watermark == max(filter(None, (open_ended, closed)))


@many
@given(strategies(), histories, st.integers(-(10**9), 10**9))
def test_how_old_the_data_are_does_not_matter(strategy: Strategy, history: list[Cut], seconds: int) -> None:
    age = timedelta(seconds=seconds)
    state = moved = ClockState()
    for _, _, summary in summaries(strategy, history):
        older = {partition: None if at is None else at - age for partition, at in summary.greatest.items()}
        state = strategy.declared.advance(state, summary)
        moved = strategy.declared.advance(moved, replace(summary, greatest=older))
        assert moved.watermark == (None if state.watermark is None else state.watermark - age)


@many
@given(strategies(), histories, st.integers(0, 50_000))
def test_no_instant_is_too_early_for_the_clock(strategy: Strategy, history: list[Cut], after_first: int) -> None:
    state, clock = states(strategy, history)[-1], strategy.declared
    early = BatchSummary({"": FIRST_INSTANT + timedelta(microseconds=after_first)}, 1, instant(0))
    reached = clock.advance(ClockState(), early).watermark
    first_mark = max(0, whole_millisecond_before(after_first - strategy.delay))
    assert reached == FIRST_INSTANT + timedelta(microseconds=first_mark)
    assert (clock.advance(state, early).watermark or FIRST_INSTANT) >= (state.watermark or FIRST_INSTANT)


@many
@given(strategies(), histories, st.integers(0, 50_000), st.sampled_from((0, 10_000, 25_000, 10**16)))
def test_no_instant_is_too_late_for_the_clock(
    strategy: Strategy, history: list[Cut], before_last: int, silence: int
) -> None:
    state, clock = states(strategy, history)[-1], strategy.declared
    last, now = LAST_MILLISECOND + timedelta(microseconds=999), instant(sum(cut.pause for cut in history))
    late = BatchSummary(dict.fromkeys(state.greatest, last - timedelta(microseconds=before_last)) | {"": last}, 1, now)
    state = clock.advance(state, late)
    silent = clock.advance(state, BatchSummary({}, 0, now + timedelta(microseconds=silence)))
    assert state.watermark is not None and silent.watermark is not None
    is_silent = strategy.heartbeat_after is not None and silence >= strategy.heartbeat_after
    passed = timedelta(microseconds=silence) if is_silent else timedelta(0)
    assert silent.watermark - state.watermark == min(passed, LAST_MILLISECOND - state.watermark)
    assert silent.closed_at(last).watermark == LAST_MILLISECOND

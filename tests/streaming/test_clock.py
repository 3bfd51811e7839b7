"""The clock is a pure step from batch to batch: never back, the same on a replay, and as durable as its JSON."""

from __future__ import annotations

import json
from functools import reduce
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from streaming.clock import BatchSummary, BoundedOutOfOrderness, ClockState
from streaming.intervals import interval
from tests.support.instants import NOW, at

instants = st.integers(-(10**9), 10**9).map(lambda micros: at(micros / 1_000_000))
summaries = st.builds(
    BatchSummary,
    greatest=st.dictionaries(st.sampled_from(["", "0", "1"]), instants, max_size=3),
    rows=st.integers(0, 10**6),
    processed_at=instants,
)
histories = st.lists(summaries, max_size=12)
clocks = st.builds(BoundedOutOfOrderness, st.sampled_from(["0 seconds", "5 seconds", "1 hour 1 millisecond"]))


def states(clock: BoundedOutOfOrderness, history: list[BatchSummary]) -> list[ClockState]:
    """The clock before the first batch and after each."""
    return list(accumulate(history, clock.advance, initial=ClockState()))


def batch(*seconds: float) -> BatchSummary:
    """The summary of a batch whose valid rows have these event times."""
    return BatchSummary({"": at(max(seconds))} if seconds else {}, len(seconds), NOW)


@given(clocks, histories)
def test_the_watermark_never_goes_back_and_never_becomes_null_again(
    clock: BoundedOutOfOrderness, history: list[BatchSummary]
) -> None:
    watermarks = [clock.watermark(state) for state in states(clock, history)]
    told = [watermark for watermark in watermarks if watermark is not None]
    assert told == sorted(told)
    assert watermarks == [None] * (len(watermarks) - len(told)) + told


@given(clocks, histories)
def test_the_watermark_is_the_greatest_event_time_so_far_less_the_delay(
    clock: BoundedOutOfOrderness, history: list[BatchSummary]
) -> None:
    seen = [instant for summary in history for instant in summary.greatest.values()]
    expected = max(seen) - interval(clock.delay) if seen else None
    assert clock.watermark(states(clock, history)[-1]) == expected


@given(clocks, histories, st.integers(0, 12))
def test_a_restart_from_the_stored_state_goes_on_as_if_it_had_never_happened(
    clock: BoundedOutOfOrderness, history: list[BatchSummary], restart: int
) -> None:
    before, after = history[:restart], history[restart:]
    stored = json.dumps(states(clock, before)[-1].to_json())
    replayed = [BatchSummary.from_json(json.loads(json.dumps(summary.to_json()))) for summary in after]
    resumed = reduce(clock.advance, replayed, ClockState.from_json(json.loads(stored)))
    assert resumed == states(clock, history)[-1]


@given(summaries)
def test_state_and_summary_come_back_from_json_exactly(summary: BatchSummary) -> None:
    state = BoundedOutOfOrderness("5 seconds").advance(ClockState(), summary)
    assert ClockState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert BatchSummary.from_json(json.loads(json.dumps(summary.to_json()))) == summary


def test_a_batch_without_valid_rows_leaves_the_clock_where_it_is() -> None:
    clock = BoundedOutOfOrderness("5 seconds")
    timeline = [
        batch(),  # nothing valid yet: no watermark
        batch(20, 10),  # watermark 15
        batch(),
        batch(12),  # behind the greatest: the watermark stays
        batch(21),  # watermark 16
    ]
    watermarks = [clock.watermark(state) for state in states(clock, timeline)]
    assert watermarks == [None, None, at(15), at(15), at(15), at(16)]


def test_the_end_of_input_moves_the_watermark_forward_only_and_later_rows_do_not_move_it_back() -> None:
    clock = BoundedOutOfOrderness("5 seconds")
    state = clock.advance(ClockState(), batch(26))
    assert state.closed_at(at(30)).watermark == at(30)
    assert state.closed_at(at(20)).watermark == at(21)
    assert ClockState().closed_at(at(30)).watermark == at(30)
    ended = state.closed_at(at(30))
    assert clock.advance(ended, batch(31)).watermark == at(30)
    assert clock.advance(ended, batch(36)).watermark == at(31)

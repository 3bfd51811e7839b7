"""What a clock remembers, and how it is written into the commit: names and units that stay."""

from __future__ import annotations

import json

from streaming.clocks.clock import BoundedOutOfOrderness
from streaming.clocks.state import BatchSummary, ClockState
from tests.support.instants import NOW, at


def test_a_clock_is_stored_as_microseconds_under_names_that_stay() -> None:
    state = ClockState({"": at(1), "p": at(2)}, at(0.5))
    epoch = 1_767_225_600_000_000
    assert state.to_json() == {
        "greatest": {"": epoch + 1_000_000, "p": epoch + 2_000_000},
        "watermark": epoch + 500_000,
        "seen": {},
        "arrived": None,
    }
    assert ClockState({}, None, {"p": None, "q": at(1)}, at(2)).to_json() == {
        "greatest": {},
        "watermark": None,
        "seen": {"p": None, "q": epoch + 1_000_000},
        "arrived": epoch + 2_000_000,
    }
    assert BatchSummary({"p": at(1)}, 7, NOW).to_json() == {
        "greatest": {"p": epoch + 1_000_000},
        "rows": 7,
        "processed_at": epoch + 43_200_000_000,
    }


def test_a_clock_remembers_each_partitions_own_greatest_time() -> None:
    clock = BoundedOutOfOrderness("0 seconds")
    state = clock.advance(ClockState({"a": at(5), "b": at(1)}, at(5)), BatchSummary({"a": at(3), "b": at(2)}, 2, NOW))
    assert state == ClockState({"a": at(5), "b": at(2)}, at(5))
    assert state.closed_at(at(9)) == ClockState({"a": at(5), "b": at(2)}, at(9))


def test_a_state_comes_back_from_json_whole_and_from_a_log_that_is_older_than_its_fields() -> None:
    state = ClockState({"p": at(1), "q": None}, at(0.5), {"p": at(3), "q": None}, at(4))
    assert ClockState.from_json(json.loads(json.dumps(state.to_json()))) == state
    old = {name: value for name, value in state.to_json().items() if name in ("greatest", "watermark")}
    assert ClockState.from_json(old) == ClockState({"p": at(1), "q": None}, at(0.5))


def test_what_a_clock_saw_last_stays_where_processing_time_goes_back() -> None:
    clock = BoundedOutOfOrderness("0 seconds", idle_after="1 minute", heartbeat_after="1 minute")
    state = clock.advance(ClockState(), BatchSummary({"p": at(1)}, 1, at(100)))
    again = clock.advance(state, BatchSummary({"p": at(2)}, 1, at(90)))
    assert (again.seen, again.arrived) == ({"p": at(100)}, at(100))


def test_a_heartbeat_does_not_move_the_watermark_back_to_processing_time() -> None:
    clock = BoundedOutOfOrderness("5 seconds", heartbeat_after="1 minute")
    ahead = clock.advance(ClockState(), BatchSummary({"": at(500)}, 1, at(100)))
    silent = BatchSummary({}, 0, at(160))
    assert clock.watermark(clock.advance(ahead, silent)) == at(495)

"""What a clock remembers, and how it is written into the commit: names and units that stay."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from streaming.base.intervals import LAST_MILLISECOND, MILLISECOND
from streaming.clocks.clock import BatchSummary, BoundedOutOfOrderness, ClockState
from tests.support.instants import NOW, at


def test_a_clock_is_stored_as_microseconds_under_names_that_stay() -> None:
    state = ClockState({"": at(1), "p": at(2)}, at(0.5))
    epoch = 1_767_225_600_000_000
    assert state.to_json() == {
        "greatest": {"": epoch + 1_000_000, "p": epoch + 2_000_000},
        "watermark": epoch + 500_000,
        "seen": {},
        "arrived": None,
        "moved_to": epoch + 500_000,
        "moved_to_at_last_row": None,
        "closed_to": None,
    }
    assert ClockState({}, at(3), {"p": None, "q": at(1)}, at(2), at(0.5), at(4)).to_json() == {
        "greatest": {},
        "watermark": epoch + 4_000_000,
        "seen": {"p": None, "q": epoch + 1_000_000},
        "arrived": epoch + 2_000_000,
        "moved_to": epoch + 3_000_000,
        "moved_to_at_last_row": epoch + 500_000,
        "closed_to": epoch + 4_000_000,
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
    assert state.closed_at(at(9)) == ClockState({"a": at(5), "b": at(2)}, at(5), closed_to=at(9))


def test_a_state_comes_back_from_json_whole_and_from_a_log_that_is_older_than_its_fields() -> None:
    state = ClockState({"p": at(1), "q": None}, at(0.5), {"p": at(3), "q": None}, at(4), at(0.25), at(2))
    assert ClockState.from_json(json.loads(json.dumps(state.to_json()))) == state
    old = {name: value for name, value in state.to_json().items() if name in ("greatest", "watermark")}
    assert ClockState.from_json(old) == ClockState({"p": at(1), "q": None}, at(2))


def test_silence_moves_the_watermark_of_an_older_log_on_from_its_rows_however_far_its_heartbeats_had_moved_it() -> None:
    clock = BoundedOutOfOrderness("1 second", heartbeat_after="1 minute")

    def after_silence(watermark: float) -> datetime | None:
        """A log written before `moved_to` was kept; its last row, of second 60, came in second 65; now it is 165."""
        value = ClockState({"": at(60)}, at(watermark), {}, at(65)).to_json()
        older = {name: value[name] for name in ("greatest", "watermark", "seen", "arrived")}
        return clock.advance(
            ClockState.from_json(json.loads(json.dumps(older))), BatchSummary({}, 0, at(165))
        ).watermark

    assert after_silence(59) == at(159)
    assert after_silence(150) == at(160)
    assert after_silence(10_000) == at(10_000)  # an end of input


def test_what_a_clock_saw_last_stays_where_processing_time_goes_back() -> None:
    clock = BoundedOutOfOrderness("0 seconds", idle_after="1 minute", heartbeat_after="1 minute")
    state = clock.advance(ClockState(), BatchSummary({"p": at(1)}, 1, at(100)))
    again = clock.advance(state, BatchSummary({"p": at(2)}, 1, at(90)))
    assert (again.last_valid_row_at, again.last_row_at) == ({"p": at(100)}, at(100))


def test_the_watermark_of_a_source_that_is_ahead_of_processing_time_moves_on_from_where_it_is() -> None:
    clock = BoundedOutOfOrderness("5 seconds", heartbeat_after="1 minute")
    ahead = clock.advance(ClockState(), BatchSummary({"": at(500)}, 1, at(100)))
    assert clock.watermark(clock.advance(ahead, BatchSummary({}, 0, at(160) - MILLISECOND))) == at(495)
    assert clock.watermark(clock.advance(ahead, BatchSummary({}, 0, at(160)))) == at(555)


def test_the_last_instants_of_the_calendar_are_closed_by_its_last_millisecond() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    for instant in (last, LAST_MILLISECOND, LAST_MILLISECOND - MILLISECOND / 2):
        assert ClockState().closed_at(instant).watermark == LAST_MILLISECOND
    before = LAST_MILLISECOND - MILLISECOND
    assert ClockState().closed_at(before).watermark == before

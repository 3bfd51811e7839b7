"""Days of a log that may go: no window that a later row can be in has a row of them, nor has another of its day."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.base.intervals import from_micros
from streaming.windows.custom import Custom
from streaming.windows.session import SessionWindow
from tests.laws.oracle import Event, micros
from tests.laws.test_window_bounds import DECLARED, HOUR
from tests.support.instants import T0

DAY = 24 * HOUR
FIXED = {name: declared for name, declared in DECLARED.items() if not declared[0].merging}


def midnight_of(instant: int) -> int:
    return instant - instant % DAY


@pytest.mark.parametrize("name", FIXED)
@given(since=st.integers(-400, 400), after=st.integers(0, 3 * DAY))
def test_a_day_that_has_to_be_corrected_has_all_rows_of_its_windows(name: str, since: int, after: int) -> None:
    window, assign = FIXED[name]
    first = micros(T0) + since * DAY
    needed = window.needed_since(from_micros(first).date())
    assert needed is not None
    for start, _ in assign(Event(None, first + after, None)):
        # The rows of this window, and of all others that start on its day.
        assert from_micros(midnight_of(start)).date() >= window.whole_since(needed)
        assert from_micros(start).date() >= needed


@pytest.mark.parametrize("name", FIXED)
@given(watermark=st.integers(-400 * DAY, 400 * DAY), kept=st.integers(0, 3), behind=st.integers(-5 * DAY, 10 * DAY))
def test_a_window_that_is_still_open_has_all_rows_of_its_day(name: str, watermark: int, kept: int, behind: int) -> None:
    window, assign = FIXED[name]
    now = micros(T0) + watermark
    needed = window.needed_since(from_micros(now - kept * DAY).date())
    assert needed is not None
    for start, end in assign(Event(None, now - behind, None)):
        assert end <= now or from_micros(start).date() >= window.whole_since(needed)


def test_rows_of_a_custom_window_may_lie_before_it() -> None:
    custom = Custom("array(struct(at, at))", "30 hours")
    # One that is open begins four days before at most: two before a row of its own, which is two days older than the
    # watermark. It has rows that are two days older still.
    assert custom.needed_since(date(2026, 1, 10)) == date(2026, 1, 4)
    assert custom.whole_since(date(2026, 1, 4)) == date(2026, 1, 6)


def test_how_far_a_session_goes_back_only_its_rows_tell() -> None:
    session = SessionWindow("4 hours")
    assert session.needed_since(date(2026, 1, 10)) is None
    assert session.whole_since(date(2026, 1, 6)) == date(2026, 1, 7)
    assert session.rows_before == timedelta(hours=4)

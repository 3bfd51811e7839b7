"""By which seconds workers choose what they begin with, and `make test` how much of a file it runs."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

import pytest

from tests.support import durations


def test_a_file_that_nobody_has_timed_takes_as_long_as_most_of_the_nearest_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed = {
        "laws/test_one.py": 1.0,
        "laws/test_two.py": 3.0,
        "laws/test_three.py": 90.0,
        "streaming/sql/test_it.py": 7.0,
    }
    monkeypatch.setattr(durations, "recorded", lambda: timed)
    assert durations.expected("laws/test_two.py") == 3
    assert durations.expected("laws/test_new.py") == 3
    assert durations.expected("streaming/test_new.py") == 7
    assert durations.expected("elsewhere/test_new.py") == median(timed.values()) == 5


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered of files that other tests have made up."""
    durations.expected.cache_clear()
    yield
    durations.expected.cache_clear()


@pytest.mark.parametrize(("seconds", "share"), [(0.0, 1.0), (3.0, 1.0), (6.0, 0.5), (600.0, 0.15)])
def test_a_file_that_takes_longer_than_it_may_has_its_turn_in_a_share_of_runs(
    seconds: float, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durations, "recorded", lambda: {"streaming/test_clocks.py": seconds})
    assert durations.share("streaming/test_clocks.py") == share

"""Why a delay is recommended, in words."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from platform_assets.texts.lateness import explained
from streaming.lateness.profile import NeededDelays, Profile, Spread
from streaming.lateness.replay import Outcome

NONE, TEN, FIFTEEN = timedelta(), timedelta(minutes=10), timedelta(minutes=15)


def outcome(delay: timedelta, late: int, wait: timedelta | None) -> Outcome:
    return Outcome(delay, 1_000, late, 50 if wait else 0, wait, wait and 2 * wait, 1.0, 2)


def profile(recommended: str | None, needed: NeededDelays, declared: str = "10 minutes") -> Profile:
    outcomes = (outcome(NONE, 300, None), outcome(TEN, 80, TEN), outcome(FIFTEEN, 5, FIFTEEN))
    return Profile(
        "hourly", needed, Spread((), 1_000, NONE, TEN, TEN, TEN), (), (), outcomes, declared, 0.99, recommended
    )


def needs(delay: timedelta, never: int = 0) -> NeededDelays:
    """900 rows need no delay, 100 this one; so many of the first come when no delay helps."""
    return NeededDelays(np.array([0, delay // timedelta(milliseconds=1)]), np.array([900 - never, 100]), never)


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (
            profile("15 minutes", needs(timedelta(minutes=12))),
            "The recommended delay is 15 minutes: 99 % of the rows need 12 min or less, and this is the next length of "
            "time that people write. With it 5 of 1,000 rows are late (99.50% on time), and a result waits 15 min in "
            "the mean, 30 min at most; with the declared 10 minutes 80 of 1,000 rows are late (92.00% on time), and a "
            "result waits 10 min in the mean, 20 min at most. Fewer rows are late, for results that come later.",
        ),
        (
            profile("10 minutes", needs(TEN), declared="15 minutes"),
            "Results come sooner, for more late rows.",
        ),
        (
            profile("10 minutes", needs(TEN)),
            "It is the declared one: 80 of 1,000 rows are late (92.00% on time), and a result waits 10 min in the mean",
        ),
        (
            profile("0 seconds", needs(NONE)),
            "The recommended delay is 0 seconds: 99 % of the rows need none. With it 300 of 1,000 rows are late "
            "(70.00% on time), and no result is closed by the clock alone;",
        ),
        (
            profile(None, needs(TEN, never=20)),
            "No delay makes 99 % of the rows come on time: 20 of 1,000 came after an end of input had closed their "
            "windows.",
        ),
    ],
)
def test_a_recommendation_says_why_and_what_it_costs(of: Profile, words: str) -> None:
    assert words in explained(of)

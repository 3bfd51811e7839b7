"""How many cases the laws are tried on: a feed and a key are one, for every kind of window."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from tests.laws.readings import VIEWS, timeline
from tests.laws.strategies import KEYS, Feed, feeds, generated
from tests.laws.timeline import Timeline, View
from tests.support.seeds import draws, eventful

T = TypeVar("T")

CASES = int(os.environ.get("TIDEMARK_LAW_CASES", "20"))
"""The least number of cases per view; `make prove` asks for more."""

PIPELINES = max(3, CASES // 5)
"""How many pipelines of streams that meet are run from their files on: a hundred by `make prove`.

Of any three, one has a silent left side, one a silent right side and one none, and one is followed in small pieces.
"""

_FEW = 10
"""Below so many cases not every kind of operator is run on Spark."""


def tried(what: str, kinds: Sequence[T], number: int) -> tuple[T, ...]:
    """All kinds or, where there are to be few cases, so many of them, others in each run."""
    drawn = range(len(kinds)) if CASES >= _FEW else draws(what).sample(range(len(kinds)), number)
    return tuple(kinds[place] for place in sorted(drawn))


TRIED = tried("views", VIEWS, 2)
"""The views that are run on Spark."""

_KEYS_WITHOUT_A_ROW = 6
"""At most, in a feed."""


def replayed(feed: Feed, views: tuple[View, ...] = VIEWS) -> Timeline:
    """What must come of a feed that is neither corrected nor run a second time."""
    expected = timeline(views)
    for number, files in enumerate(feed.drains):
        for start in range(0, len(files), feed.files_per_batch):
            names = [
                (f"{number}/{start + place}", lines)
                for place, lines in enumerate(files[start:][: feed.files_per_batch])
            ]
            expected.batch(names)
        if feed.ends_between or number == len(feed.drains) - 1:
            expected.end_of_input()
    return expected


def shows(expected: Timeline, view: View) -> bool:
    """There are first results, and late pairs that change them, some of them by updates where it has any."""
    has_late = bool(expected.late(view) and expected.truth(view) - expected.first(view) and expected.first(view))
    return has_late and (view.late != "update" or bool(expected.updates(view) and expected.backlog(view)))


FEEDS = -(-CASES // (len(KEYS) - _KEYS_WITHOUT_A_ROW))
"""How many feeds hold that many cases."""


@cache
def feed(number: int) -> Feed:
    """One of the `FEEDS`; it is drawn when a test asks for it, as drawing takes longer than collecting all tests."""

    def drawn(again: int) -> Feed:
        # Hypothesis begins with the plainest feed, and then varies what it has drawn: so each has a seed of its own.
        return max(generated(feeds(), 2, "feed", number, again), key=lambda feed: len(set(feed.lines())))

    def shows_all(feed: Feed) -> bool:
        # An end of input closes the windows of those views that there are, and what is late goes by it.
        timelines = [replayed(feed, views) for views in {VIEWS, TRIED}]
        return all(shows(expected, view) for expected in timelines for view in expected.views)

    return eventful(drawn, shows_all)

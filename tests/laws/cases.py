"""How many cases the laws are tried on: a feed and a key are one, for every kind of window."""

from __future__ import annotations

import os

from tests.laws.readings import timeline
from tests.laws.strategies import KEYS, Feed, feeds, generated
from tests.laws.timeline import Timeline

CASES = int(os.environ.get("TIDEMARK_LAW_CASES", "20"))
"""The least number of cases per view; `make prove` asks for more."""

FEEDS = generated(feeds(), -(-CASES // (len(KEYS) - 1)) + 1)[1:]
"""Hypothesis begins with the plainest feed, which proves little. A key may have no row in one feed or the other."""


def replayed(feed: Feed) -> Timeline:
    """What must come of a feed that is neither corrected nor run a second time."""
    expected = timeline()
    for number, files in enumerate(feed.drains):
        for start in range(0, len(files), feed.files_per_batch):
            names = [
                (f"{number}/{start + place}", lines)
                for place, lines in enumerate(files[start:][: feed.files_per_batch])
            ]
            expected.batch(names)
        expected.settle()
        if feed.ends_between or number == len(feed.drains) - 1:
            expected.end_of_input()
    return expected

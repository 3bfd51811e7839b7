"""Readings out of order: instants that are moved forward by a random time, reproducibly."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

LONGEST_SHIFT_MILLIS = 6_999


def shifted(instants: Iterable[int], seed: int, longest: int = LONGEST_SHIFT_MILLIS) -> Iterator[int]:
    """Each of `instants` (milliseconds), in order, moved forward by 0 to `longest` milliseconds; `seed` decides."""
    chance = random.Random(seed)
    for instant in instants:
        yield instant + chance.randint(0, longest)

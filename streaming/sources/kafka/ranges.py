"""Ranges of offsets: pure. A range is its first offset and the one behind its last; ranges are sorted and apart.

An empty range is a place: it says that a partition was read from there, and brought nothing so far.
"""

from __future__ import annotations

from collections.abc import Iterable

Range = tuple[int, int]
Ranges = tuple[Range, ...]


def joined(ranges: Iterable[Range]) -> Ranges:
    """The offsets of `ranges` in as few ranges as there can be."""
    result: list[Range] = []
    for first, end in sorted(ranges):
        if result and first <= result[-1][1]:
            result[-1] = (result[-1][0], max(end, result[-1][1]))
        else:
            result.append((first, end))
    return tuple(result)


def within(ranges: Ranges, bounds: Range) -> Ranges:
    """The parts of `ranges` that lie in `bounds`."""
    cut = ((max(first, bounds[0]), min(end, bounds[1])) for first, end in ranges)
    return tuple((first, end) for first, end in cut if first < end)


def without(bounds: Range, ranges: Ranges) -> Ranges:
    """The parts of `bounds` that lie in none of the ranges."""
    result, place = [], bounds[0]
    for first, end in within(ranges, bounds):
        result.append((place, first))
        place = end
    return tuple((first, end) for first, end in (*result, (place, bounds[1])) if first < end)


def beyond(place: int, ranges: Ranges) -> int:
    """The first offset from `place` on that is in none of the ranges."""
    return next((end for first, end in ranges if first <= place < end), place)


def size(ranges: Ranges) -> int:
    """The number of offsets in the ranges."""
    return sum(end - first for first, end in ranges)


def words(ranges: Ranges) -> str:
    """The ranges for people, with their last offsets: `3 to 7, 9`."""
    return ", ".join(f"{first}" if end == first + 1 else f"{first} to {end - 1}" for first, end in ranges)

"""The memory of the Kafka source: the topics that it has given, and the offsets of them that are in the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.sources.source import Memory

Range = tuple[int, int]
"""The first offset and the one behind the last. An empty range is a place: its partition was read from there, and
brought nothing so far.
"""
Ranges = tuple[Range, ...]
"""Sorted and apart."""
RangesOf = Mapping[str, Ranges]
"""By the number of a partition, as text."""
Partition = tuple[str, int]
"""A topic's name and the number of one of its partitions."""


@dataclass(frozen=True)
class Topic:
    """A topic as it is now: a topic that is created again under its name has another `id`."""

    name: str
    id: str
    partitions: tuple[int, ...]


def name_of(partition: Partition) -> str:
    """The name of a partition everywhere: `orders-0`."""
    return f"{partition[0]}-{partition[1]}"


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


@dataclass(frozen=True)
class KafkaMemory:
    """All of it, as it is after a batch.

    `query` planned the batch; `start` is the start position as it was declared when that query began. `topics`: the id
    of each topic that the query has read. `ranges`: by topic id, the offsets that are in the log, and those that were
    found to have no row. `gaps`: offsets without a row, neither markers of transactions nor rows of aborted ones, by
    the name of the partition. `lost`: what was removed before it could be read, and went by the declaration
    `when_lost="skip"`, by the name of the partition.
    """

    query: str | None = None
    start: str | None = None
    topics: Mapping[str, str] = field(default_factory=dict)
    ranges: Mapping[str, RangesOf] = field(default_factory=dict)
    gaps: Mapping[str, int] = field(default_factory=dict)
    lost: Mapping[str, Ranges] = field(default_factory=dict)

    def of(self, topic_id: str, partition: int) -> Ranges | None:
        """The offsets of a partition that are in the log; None where it was never read."""
        return self.ranges.get(topic_id, {}).get(str(partition))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "query": self.query,
            "start": self.start,
            "topics": dict(self.topics),
            "ranges": {topic: _lists(partitions) for topic, partitions in self.ranges.items()},
            "gaps": dict(self.gaps),
            "lost": _lists(self.lost),
        }

    @classmethod
    def from_json(cls, value: Memory) -> KafkaMemory:
        """The inverse of `to_json`; of nothing, nothing."""
        return cls(
            query=value.get("query"),
            start=value.get("start"),
            topics=value.get("topics", {}),
            ranges={topic: _tuples(partitions) for topic, partitions in value.get("ranges", {}).items()},
            gaps=value.get("gaps", {}),
            lost=_tuples(value.get("lost", {})),
        )


def _lists(ranges: RangesOf) -> dict[str, list[list[int]]]:
    return {name: [list(each) for each in entry] for name, entry in ranges.items()}


def _tuples(ranges: Mapping[str, Iterable[Iterable[int]]]) -> dict[str, Ranges]:
    return {name: tuple((first, end) for first, end in entry) for name, entry in ranges.items()}

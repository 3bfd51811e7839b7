"""The memory of the Kafka source: the topics that it has given, and the offsets of them that are in the log.

Beside it are batches as Spark plans them: offsets by partition, what of them is gone or was given before, and how that
is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streaming.base import CheckpointError, SourceError
from streaming.sources.source import Memory
from streaming.spark import planned_offsets

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
Plan = Mapping[Partition, Range]
"""The offsets of each partition that a batch is to take; empty ones are there as well."""


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


def planned_ranges(checkpoint: str, query_batch: int) -> dict[Partition, Range]:
    """The plan of a batch of the query. A partition that the batch before did not know begins at its first offset."""
    begins, ends = (_by_partition(offsets) for offsets in planned_offsets(checkpoint, query_batch))
    return {partition: (begins.get(partition, 0), end) for partition, end in sorted(ends.items())}


def planned_ends(checkpoint: str, query_batch: int) -> dict[Partition, int]:
    """Up to where the batches of the query take each partition, this one included."""
    return _by_partition(planned_offsets(checkpoint, query_batch)[1])


def _by_partition(offsets: Mapping[str, Mapping[str, int]] | None) -> dict[Partition, int]:
    return {
        (topic, int(number)): offset
        for topic, partitions in (offsets or {}).items()
        for number, offset in partitions.items()
    }


def described(plan: Plan) -> str:
    """The plan in words: `orders-0 offsets 0 to 9`."""
    taken = [
        f"{name_of(partition)} offsets {words((bounds,))}" for partition, bounds in plan.items() if size((bounds,))
    ]
    return ", ".join(taken)


def check_same_topics(memory: KafkaMemory, topics: Mapping[str, Topic], checkpoint: str) -> None:
    """Refuse topics that are gone, or that were deleted and created again under their names.

    Raises:
        SourceError: with the way out.
    """
    for name, identity in memory.topics.items():
        held = ", ".join(
            f"{name}-{number} offsets {words(ranges)}"
            for number, ranges in sorted(memory.ranges.get(identity, {}).items())
            if size(ranges)
        )
        has = f"The log has {held} of it" if held else "The log has nothing of it yet"
        if name not in topics:
            raise SourceError(
                f"the topic {name!r} is not there any more, or may not be read. {has}; what was not read is gone with "
                "it. To go on without it, leave it out of the declaration, stop the stream and move the checkpoint "
                f"{checkpoint!r} away; nothing is read twice."
            )
        if topics[name].id != identity:
            raise SourceError(
                f"the topic {name!r} was deleted and created again: its id was {identity} and is {topics[name].id}. "
                f"{has}; what was not read is gone. To read the new one from its first row into the same log, stop "
                f"the stream and move the checkpoint {checkpoint!r} away; nothing is read twice."
            )


def check_held(memory: KafkaMemory, checkpoint: str, query_batch: int) -> None:
    """Refuse a batch that the log is said to hold, where it lacks some of its offsets.

    Raises:
        CheckpointError: with the way out.
    """
    lacking = {
        partition: without(bounds, memory.of(memory.topics.get(partition[0], ""), partition[1]) or ())
        for partition, bounds in planned_ranges(checkpoint, query_batch).items()
    }
    what = ", ".join(f"{name_of(partition)} offsets {words(ranges)}" for partition, ranges in lacking.items() if ranges)
    if what:
        raise CheckpointError(
            f"the checkpoint {checkpoint!r} is an older copy: the log has a batch {query_batch} of its query, but not "
            f"{what}, which the checkpoint takes in that batch. Stop the stream and move the checkpoint away: the "
            "stream then goes on with what the log lacks, and reads nothing twice."
        )


def lost_ranges(
    plan: Plan, earliest: Mapping[Partition, int], held: Mapping[Partition, Ranges]
) -> dict[Partition, Ranges]:
    """The offsets that the brokers removed before the batch could take them, but for those that the log has."""
    removed = {
        partition: without((first, min(earliest.get(partition, first), end)), held.get(partition, ()))
        for partition, (first, end) in plan.items()
    }
    return {partition: ranges for partition, ranges in removed.items() if ranges}


def check_nothing_lost(lost: Mapping[Partition, Ranges], location: str) -> None:
    """Refuse to go on without rows that the brokers removed before they were read.

    Raises:
        SourceError: with the offsets, and the declaration that goes on without them.
    """
    if not lost:
        return
    what = ", ".join(f"{name_of(partition)} offsets {words(ranges)}" for partition, ranges in sorted(lost.items()))
    raise SourceError(
        f"{sum(map(size, lost.values())):,} offsets of {location} were removed before they were read: {what}. The "
        "retention of the topic is shorter than the stream was away, or they were gone before the stream was given it. "
        "Bring them back if you can; to go on without them, declare Kafka(..., when_lost='skip'): they are then "
        "counted with the batch, and shown."
    )


def _lists(ranges: RangesOf) -> dict[str, list[list[int]]]:
    return {name: [list(each) for each in entry] for name, entry in ranges.items()}


def _tuples(ranges: Mapping[str, Iterable[Iterable[int]]]) -> dict[str, Ranges]:
    return {name: tuple((first, end) for first, end in entry) for name, entry in ranges.items()}

"""Batches as Spark plans them: offsets by partition, what of them is gone or was given before, and how that is told."""

from __future__ import annotations

from collections.abc import Mapping

from streaming.base import CheckpointError, SourceError
from streaming.sources.kafka.memory import KafkaMemory, Partition, Range, Ranges, Topic, name_of, size, without, words
from streaming.spark import planned_offsets

Plan = Mapping[Partition, Range]
"""The offsets of each partition that a batch is to take; empty ones are there as well."""


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

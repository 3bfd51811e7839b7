"""Records of a planned batch, read without Spark's reader, which fails at a timestamp that no instant of Spark has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streaming.base import LAST_MILLISECOND, to_micros
from streaming.kafka import ClientOptions, for_tasks

if TYPE_CHECKING:
    from confluent_kafka import Message

from typing import TYPE_CHECKING

from streaming.base import CheckpointError, SourceError
from streaming.sources.kafka.memory import KafkaMemory, Partition, Range, Ranges, Topic, name_of, size, without, words
from streaming.spark import planned_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LAST_MILLI = to_micros(LAST_MILLISECOND) // 1_000
"""The last millisecond of the year 9999."""
FIRST_BEYOND_SPARK = 2**63 // 1_000 + 1
"""The first millisecond that is no instant of Spark, whose microseconds have 64 bits."""

_AT_ONCE, _ANSWERS_WITHIN = 5_000, 60.0
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ORIGIN = pa.struct(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_ROWS = pa.schema([("_raw", pa.binary()), ("_origin", _ORIGIN)])
_DDL = (
    "_raw binary, _origin struct<topic: string, partition: int, offset: bigint, timestamp: timestamp, key: binary, "
    "headers: array<struct<key: string, value: binary>>>"
)
Plan = Mapping[Partition, Range]
"""The offsets of each partition that a batch is to take; empty ones are there as well."""


def read_directly(spark: SparkSession, servers: str, options: ClientOptions, headers: bool, plan: Plan) -> DataFrame:
    """The records of a plan as `_raw` and `_origin`, one task a partition of a topic.

    Raises:
        SourceError: a variable of the environment is not set, or a file of the options cannot be read.
    """
    ranges = [(topic, number, first, end) for (topic, number), (first, end) in sorted(plan.items()) if first < end]
    reader = _Reader(for_tasks(servers, options), headers)
    planned = spark.createDataFrame(ranges, "topic string, number int, first bigint, end bigint")
    return planned.repartitionByRange(len(ranges) or 1, "topic", "number").mapInArrow(reader.batches, _DDL)


def millis_of(timestamp: int) -> int | None:
    """The milliseconds of a record's timestamp that is an instant up to the year 9999; -1 stands for none."""
    return timestamp if 0 <= timestamp <= LAST_MILLI else None


@dataclass(frozen=True)
class _Reader:
    config: Mapping[str, Any] = field(repr=False)
    headers: bool

    def batches(self, ranges: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of the ranges of offsets, in their order."""
        for each in (row for batch in ranges for row in batch.to_pylist()):
            for messages in self._messages((each["topic"], each["number"]), each["first"], each["end"]):
                yield self._batch(messages)

    def _messages(self, partition: tuple[str, int], first: int, end: int) -> Iterator[list[Message]]:
        from confluent_kafka import Consumer, TopicPartition

        own = {"group.id": "tidemark", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        # The marker of a transaction at the end of a range brings no message, but the end of the partition is told.
        consumer = Consumer({**self.config, **own, "enable.partition.eof": True})
        try:
            consumer.assign([TopicPartition(*partition, first)])
            heard, last_error = time.monotonic(), "no answer"
            while True:
                messages = consumer.consume(_AT_ONCE, 1.0)
                records = [message for message in messages if message.error() is None]
                read = [message for message in records if _offset(message) < end]
                if read:
                    yield read
                    heard = time.monotonic()
                ends = [message for message in messages if _is_end(message)]
                if any(_offset(message) >= end for message in (*records, *ends)) or _next(read) >= end:
                    return
                last_error = next((str(error) for each in messages if (error := each.error()) is not None), last_error)
                if time.monotonic() - heard > _ANSWERS_WITHIN:
                    raise TimeoutError(
                        f"offsets {first} to {end - 1} of {partition[0]}-{partition[1]} were not read within "
                        f"{_ANSWERS_WITHIN:.0f} s ({last_error})"
                    )
        finally:
            consumer.close()

    def _batch(self, messages: Iterable[Message]) -> pa.RecordBatch:
        rows = [(message.value(), self._origin(message)) for message in messages]
        return pa.RecordBatch.from_arrays(
            [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(_ROWS)], schema=_ROWS
        )

    def _origin(self, message: Message) -> dict[str, Any]:
        millis = millis_of(message.timestamp()[1])
        # As Spark's reader has it, a record without any has null.
        pairs: Any = (message.headers() or None) if self.headers else None
        return {
            "topic": message.topic(),
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": None if millis is None else millis * 1_000,
            "key": message.key(),
            "headers": None if pairs is None else [{"key": key, "value": value} for key, value in pairs],
        }


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a message that was read has a place"
    return offset


def _next(messages: list[Message]) -> int:
    return _offset(messages[-1]) + 1 if messages else -1


def _is_end(message: Message) -> bool:
    from confluent_kafka import KafkaError

    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF


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
        "retention of the topic is shorter than the stream was away. Bring them back if you can; to go on without "
        "them, declare Kafka(..., when_lost='skip'): they are then counted with the batch, and shown."
    )

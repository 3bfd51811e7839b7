"""Records of a planned batch, read without Spark's reader, which fails at a timestamp that no instant of Spark has."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streaming.base import LAST_MILLISECOND, to_micros
from streaming.kafka import ClientOptions, for_tasks
from streaming.sources.kafka.plan import Plan

if TYPE_CHECKING:
    from confluent_kafka import Message

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

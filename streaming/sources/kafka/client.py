"""Kafka by librdkafka: what brokers are asked, and records as Python reads them, without a row of Spark's.

Requests are for topics with their ids and partitions, offsets, and what a group committed. Records are read in tasks or
in the driver itself. Only who reads topics loads this module, and the library with it, which takes a while.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec
from numpy.typing import NDArray

from streaming.base import LAST_MILLISECOND, SourceError, to_micros
from streaming.kafka import ClientOptions, LastError, for_librdkafka, reads_committed
from streaming.sources.kafka.memory import Partition, Plan, Range, Topic, check_nothing_lost, name_of, words
from streaming.sources.source import PayloadPart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_REQUEST_WITHIN, _RECORDS_WITHIN = 10.0, 60.0
"""Seconds within which brokers answer a request, and within which those come on that give records."""

_SETTLES_WITHIN, _PAUSE = 30.0, 0.2
_AWAY = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
_CHANGING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_Key = TypeVar("_Key")

LAST_MILLI = to_micros(LAST_MILLISECOND) // 1_000
"""The last millisecond of the year 9999."""
FIRST_BEYOND_SPARK = 2**63 // 1_000 + 1
"""The first millisecond that is no instant of Spark, whose microseconds have 64 bits."""

_BYTES_A_RECORD = 512
"""An estimate: nobody knows the bytes of offsets before they are read."""
_FOR_ONE_TASK = 2 * 2**20 // _BYTES_A_RECORD
"""Offsets that one task takes at least: another one would cost more than it saves, and write a file more to be read."""
_AT_ONCE, _WAITS = 20_000, 0.05
_SETTINGS: Mapping[str, Any] = {
    "group.id": "tidemark",
    "enable.auto.commit": False,
    # Where an offset is gone, the range is not gone on with as if nothing had been there.
    "auto.offset.reset": "error",
    # The marker of a transaction at the end of a range brings no message, but the end of the partition is told.
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 50,
    # What is fetched behind the end of a range is of no use.
    "queued.min.messages": _AT_ONCE,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 10,
    "receive.message.max.bytes": 2**31 - 1,
    "reconnect.backoff.max.ms": 1_000,
}
_INSTANT = pa.timestamp("us", "UTC")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ORIGIN = pa.struct(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _INSTANT),
        ("key", pa.binary()),
        ("headers", _HEADERS),
    ]
)
_ROWS = pa.schema([("_raw", pa.binary()), ("_origin", _ORIGIN)])
_DDL = (
    "_raw binary, _origin struct<topic: string, topic_id: string, partition: int, offset: bigint, "
    "timestamp: timestamp, key: binary, headers: array<struct<key: string, value: binary>>>"
)

_idle: dict[frozenset[tuple[str, Any]], list[Consumer]] = {}
"""Consumers of this process that read nothing now, by their settings: to connect takes longer than a small batch."""


@lru_cache(maxsize=64)
def client_of(servers: str, options: ClientOptions) -> KafkaClient:
    """The one client of this process for these servers and options."""
    return KafkaClient(servers, options)


class KafkaClient:
    """Questions to the brokers at `servers`.

    Every method raises SourceError where none of them answers within ten seconds, or they refuse to. Where only the one
    broker is gone that knows the answer, another takes its place, which is waited for.
    """

    def __init__(self, servers: str, options: ClientOptions) -> None:
        self._servers = servers
        self._heard = LastError()
        self._config = for_librdkafka(servers, options) | {"error_cb": self._heard}
        try:
            self._admin = AdminClient(
                {name: value for name, value in self._config.items() if name != "isolation.level"}
            )
        except KafkaException as error:
            raise SourceError(
                f"no client of Kafka can be made ({error.args[0].str()}); correct the options. Nothing was read."
            ) from error
        committed = reads_committed(options)
        self._isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def names(self, pattern: str | None = None) -> list[str]:
        """The names of all topics but Kafka's own, or of those that a regular expression matches as a whole."""
        try:
            there = self._admin.list_topics(timeout=_REQUEST_WITHIN).topics
        except KafkaException as error:
            raise self._error(error) from error
        names = sorted(name for name in there if not name.startswith("__"))
        return names if pattern is None else [name for name in names if re.fullmatch(pattern, name)]

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that are there, by name."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        descriptions = self._answers(
            lambda within: self._admin.describe_topics(TopicCollection(wanted), request_timeout=within),
            missing=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )
        return {
            name: Topic(name, str(topic.topic_id), tuple(sorted(entry.id for entry in topic.partitions)))
            for name, topic in descriptions.items()
        }

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The first offset that is still there of each partition."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()))

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        """The offset behind the last row of each partition that may be read."""
        return self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()))

    def from_instant(self, partitions: Iterable[Partition], instant: datetime) -> dict[Partition, int | None]:
        """The first offset of each partition whose row is of the instant or later; None where there is none."""
        # A row of a part of a millisecond after the instant would be of the millisecond before.
        return self.from_millis(partitions, -(-to_micros(instant) // 1000))

    def from_millis(self, partitions: Iterable[Partition], millis: int) -> dict[Partition, int | None]:
        """As `from_instant`, of milliseconds since the epoch that may lie beyond the instants that Python knows."""
        offsets = self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(millis)))
        return {partition: None if offset < 0 else offset for partition, offset in offsets.items()}

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """The offset that a consumer group has committed of each partition; None where it has none."""
        asked = [TopicPartition(*partition) for partition in partitions]
        if not asked:
            return {}
        request = [ConsumerGroupTopicPartitions(group, asked)]
        (answer,) = self._answers(
            lambda within: self._admin.list_consumer_group_offsets(request, request_timeout=within)
        ).values()
        return {
            (each.topic, each.partition): each.offset if each.offset >= 0 else None for each in answer.topic_partitions
        }

    def first_offset_from(self, partition: Partition, offset: int) -> int | None:
        """The offset of the first row at `offset` or behind, of whatever transaction; None where none comes."""
        config = self._config | {"group.id": "tidemark", "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer(config | {"isolation.level": "read_uncommitted"})
        try:
            consumer.assign([TopicPartition(*partition, offset)])
            message = consumer.poll(_REQUEST_WITHIN)
            return None if message is None or message.error() else message.offset()
        finally:
            consumer.close()

    def _offsets(self, asked: Mapping[Partition, OffsetSpec]) -> dict[Partition, int]:
        if not asked:
            return {}
        specs = {TopicPartition(*partition): spec for partition, spec in asked.items()}
        offsets = self._answers(
            lambda within: self._admin.list_offsets(specs, isolation_level=self._isolation, request_timeout=within)
        )
        return {(place.topic, place.partition): answer.offset for place, answer in offsets.items()}

    def _answers(
        self, ask: Callable[[float], Mapping[_Key, Future[Any]]], missing: int | None = None
    ) -> dict[_Key, Any]:
        """The answers, but for errors of the code `missing`; `ask` is given the seconds that it may take."""
        began, within = time.monotonic(), _REQUEST_WITHIN / 4
        while True:
            try:
                return dict(_there(ask(within), missing))
            except (KafkaException, TimeoutError) as error:
                cause = error.args[0] if error.args else None
                passes = not isinstance(cause, KafkaError) or cause.code() in (*_AWAY, *_CHANGING)
                if not passes or time.monotonic() - began > _SETTLES_WITHIN:
                    raise self._error(error) from error
            # The client itself would look for another broker minutes later; this fails where there is none.
            self.names()
            within = _REQUEST_WITHIN
            time.sleep(_PAUSE)

    def _error(self, error: Exception) -> SourceError:
        cause = error.args[0] if error.args else None
        text = cause.str() if isinstance(cause, KafkaError) else "no answer"
        if isinstance(cause, KafkaError) and cause.code() not in (*_AWAY, *_CHANGING):
            return SourceError(
                f"the brokers at {self._servers!r} refuse to tell about the topics ({text}); give the user of the "
                "stream the right to describe and read them, or correct the options of Kafka. Nothing was read."
            )
        self._admin.poll(0)
        advice = self._heard.advice or "Start it, or correct servers and options of Kafka"
        return SourceError(
            f"no Kafka broker answers at {self._servers!r} ({text}{self._heard}). {advice}. Nothing was read."
        )


def _there(futures: Mapping[_Key, Future[Any]], missing: int | None) -> Iterator[tuple[_Key, Any]]:
    for key, future in futures.items():
        try:
            yield key, future.result(2 * _REQUEST_WITHIN)
        except KafkaException as error:
            if error.args[0].code() != missing:
                raise


def read_directly(spark: SparkSession, parts: Sequence[Records]) -> DataFrame:
    """The records of all parts as `_raw` and `_origin`, one task a part.

    Spark's own reader fails at a timestamp that no instant of Spark has.
    """

    def batches(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            yield from parts[number].batches()

    return spark.range(0, len(parts), 1, len(parts) or 1).mapInArrow(batches, _DDL)


def instants_of(timestamps: NDArray[np.int64]) -> pa.TimestampArray:
    """The timestamps of records, null unless they are of the years 1970 to 9999; -1 stands for none."""
    has_one = (timestamps >= 0) & (timestamps <= LAST_MILLI)
    return pa.array(np.where(has_one, timestamps, 0) * 1_000, mask=~has_one).view(_INSTANT)


@dataclass(frozen=True)
class Records(PayloadPart):
    """The records in a range of offsets of each of some partitions.

    `client` has the options of the consumer that reads them; `ids` has those of the topics. `skips` is true where
    reading goes on without records that were removed after the batch was planned. `location` names servers and topics.
    """

    client: Mapping[str, Any] = field(repr=False)
    ids: Mapping[str, str]
    headers: bool
    skips: bool
    location: str
    ranges: Plan

    @property
    def length(self) -> int:
        """An estimate by the number of offsets."""
        return _BYTES_A_RECORD * sum(end - first for first, end in self.ranges.values())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The records, a block at a time; of one partition in their order.

        Raises:
            SourceError: records are gone, may not be read, or no broker gives them.
        """
        with _lent({**_SETTINGS, **self.client}) as consumer:
            for found in _Reading(self, consumer).blocks():
                blocks = [self._batch(partition, messages) for partition, messages in found.items()]
                yield blocks[0] if len(blocks) == 1 else _together(blocks)

    def _batch(self, partition: Partition, messages: Sequence[Message]) -> pa.RecordBatch:
        number, (topic, of_topic) = len(messages), partition
        origin = [
            pa.repeat(topic, number),
            pa.repeat(self.ids[topic], number),
            pa.repeat(pa.scalar(of_topic, pa.int32()), number),
            pa.array([message.offset() for message in messages], pa.int64()),
            instants_of(np.array([message.timestamp()[1] for message in messages], np.int64)),
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array(map(_headers, messages), _HEADERS) if self.headers else pa.nulls(number, _HEADERS),
        ]
        payloads = pa.array([message.value() for message in messages], pa.binary())
        origins = pa.StructArray.from_arrays(origin, fields=list(_ORIGIN))
        return pa.RecordBatch.from_arrays([payloads, origins], schema=_ROWS)


def shared_out(records: Records, ranges: Iterable[tuple[Partition, Range]], tasks: int) -> list[Sequence[Records]]:
    """The `ranges`, read as `records` are, shared out among about so many tasks; each has one part or more."""
    wanted = list(ranges)
    share = max(math.ceil(sum(end - first for _, (first, end) in wanted) / tasks), _FOR_ONE_TASK)
    groups: list[list[tuple[Partition, Range]]] = [[]]
    room = share
    for partition, (first, last) in wanted:
        while first < last:
            if room <= 0:
                groups.append([])
                room = share
            end = min(last, first + room)
            # What is left is read with it where that is little.
            if last - end < _FOR_ONE_TASK:
                end = last
            groups[-1].append((partition, (first, end)))
            room -= end - first
            first = end
    return [[replace(records, ranges=plan) for plan in _plans(group)] for group in groups if group]


def _plans(ranges: Iterable[tuple[Partition, Range]]) -> Sequence[Plan]:
    """The ranges in as few plans as there can be, each of which has one range of a partition."""
    plans: list[dict[Partition, Range]] = []
    for partition, bounds in ranges:
        plan = next((plan for plan in plans if partition not in plan), None)
        if plan is None:
            plans.append({partition: bounds})
        else:
            plan[partition] = bounds
    return plans


class _Reading:
    """The reading of some ranges by a consumer.

    A range ends with the offset behind it, or with the end of its partition: markers of transactions and what
    compaction took are offsets without a record.
    """

    def __init__(self, records: Records, consumer: Consumer) -> None:
        self._records = records
        self._consumer = consumer
        self._places = {partition: first for partition, (first, _) in records.ranges.items()}
        self._last_error = "no answer"

    def blocks(self) -> Iterator[dict[Partition, list[Message]]]:
        """The messages in the ranges by their partitions, as many as came together."""
        self._assign()
        heard = time.monotonic()
        while self._places:
            left = sum(self._end(partition) - place for partition, place in self._places.items())
            before = dict(self._places)
            messages = self._consumer.consume(min(_AT_ONCE, left), _WAITS)
            records = [message for message in messages if message.error() is None]
            found = self._within(records)
            if len(records) < len(messages):
                for message in messages:
                    self._hear(message)
            self._leave_out_the_ended()
            if found:
                yield found
            if self._places != before:
                # Whoever is given the messages takes time with them.
                heard = time.monotonic()
            elif time.monotonic() - heard > _RECORDS_WITHIN:
                raise SourceError(
                    f"no broker gave {self._waiting()} within {_RECORDS_WITHIN:.0f} s ({self._last_error}). Make sure "
                    "that each partition has a leader that can be reached from here, and run again; nothing of the "
                    "batch was appended."
                )

    def _assign(self) -> None:
        self._consumer.assign([TopicPartition(*partition, place) for partition, place in self._places.items()])

    def _end(self, partition: Partition) -> int:
        return self._records.ranges[partition][1]

    def _waiting(self) -> str:
        ranges = {partition: words(((place, self._end(partition)),)) for partition, place in self._places.items()}
        return ", ".join(f"{name_of(partition)} offsets {text}" for partition, text in sorted(ranges.items()))

    def _within(self, records: list[Message]) -> dict[Partition, list[Message]]:
        """Those records that lie in a range, by partition; their places are left behind."""
        if len(self._records.ranges) == 1:
            found = {partition: records for partition in self._places if records}
        else:
            found = {}
            for message in records:
                partition = _partition_of(message)
                if partition in self._places:
                    found.setdefault(partition, []).append(message)
        for partition, messages in found.items():
            end, last = self._end(partition), _offset(messages[-1])
            self._places[partition] = last + 1
            if last >= end:
                found[partition] = [message for message in messages if _offset(message) < end]
        return {partition: messages for partition, messages in found.items() if messages}

    def _hear(self, message: Message) -> None:
        """Take note of what is no record: the end of a partition, or an error, which may be of none."""
        error = message.error()
        code = None if error is None else error.code()
        if code == KafkaError._PARTITION_EOF:
            partition = _partition_of(message)
            if partition in self._places:
                self._places[partition] = max(self._places[partition], _offset(message))
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._miss(_partition_of(message))
        elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise SourceError(
                f"the brokers refuse to give records of {message.topic()!r}; give the user of the stream the right to "
                "read them. Nothing of the batch was appended."
            )
        elif error is not None:
            self._last_error = error.str()

    def _miss(self, partition: Partition) -> None:
        """Go on behind records that are gone, where that is declared."""
        if partition not in self._places:
            return
        place, end = self._places[partition], self._end(partition)
        low, high = self._consumer.get_watermark_offsets(TopicPartition(*partition), _RECORDS_WITHIN)
        if low <= place:
            raise SourceError(
                f"{name_of(partition)} ends at {high} now, and offsets {words(((place, end),))} of it were to be read: "
                "its brokers have lost them. Bring them back, or stop the stream and move its checkpoint away."
            )
        if not self._records.skips:
            check_nothing_lost({partition: ((place, min(low, end)),)}, self._records.location)
        self._places[partition] = low
        self._assign()

    def _leave_out_the_ended(self) -> None:
        ended = [partition for partition, place in self._places.items() if place >= self._end(partition)]
        for partition in ended:
            del self._places[partition]
        if ended and self._places:
            self._consumer.incremental_unassign([TopicPartition(*partition) for partition in ended])


@contextmanager
def _lent(settings: Mapping[str, Any]) -> Iterator[Consumer]:
    """A consumer that nobody else uses meanwhile; after an error it is used no more.

    Raises:
        SourceError: it cannot be made.
    """
    idle = _idle.setdefault(frozenset(settings.items()), [])
    try:
        consumer = idle.pop()
    except IndexError:
        try:
            consumer = Consumer(dict(settings))
        except KafkaException as error:
            raise SourceError(
                f"no client of Kafka can be made ({error.args[0].str()}); correct the options. Nothing was read."
            ) from error
    try:
        yield consumer
    except BaseException:
        consumer.close()
        raise
    consumer.unassign()
    idle.append(consumer)


def _together(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return batch


def _headers(message: Message) -> list[dict[str, Any]] | None:
    # As Spark's reader has it, a record without any has null.
    pairs: Any = message.headers() or None
    return None if pairs is None else [{"key": key, "value": value} for key, value in pairs]


def _partition_of(message: Message) -> Partition:
    topic, number = message.topic(), message.partition()
    assert topic is not None and number is not None, "a message that was read has a place"
    return topic, number


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None, "a message that was read has a place"
    return offset

"""The requests to brokers besides rows: topics with their ids and partitions, offsets, and what a group committed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from streaming.base import SourceError, to_micros
from streaming.kafka import ClientOptions, LastError, for_librdkafka, reads_committed
from streaming.sources.kafka.memory import Partition, Topic

ANSWERS_WITHIN = 10.0
"""Seconds."""

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
            there = self._admin.list_topics(timeout=ANSWERS_WITHIN).topics
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
            message = consumer.poll(ANSWERS_WITHIN)
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
        began, within = time.monotonic(), ANSWERS_WITHIN / 4
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
            within = ANSWERS_WITHIN
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
            yield key, future.result(2 * ANSWERS_WITHIN)
        except KafkaException as error:
            if error.args[0].code() != missing:
                raise

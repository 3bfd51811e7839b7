"""The progress of a delivery, in a compacted topic: records of the same transactions that its rows are in."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from streaming.base import SinkError, SourceError
from streaming.kafka import for_librdkafka
from streaming.sinks.kafka.errors import cause_of, translated
from streaming.sinks.kafka.records import NOW, Record
from streaming.sinks.progress import check_own
from streaming.sinks.sink import Delivered, NumberedBatch

_ANSWERS_WITHIN = 30.0
_PARTITION = 0
_CLEANUP = "cleanup.policy"
_CONFIG = {
    _CLEANUP: "compact",
    # The segment that is written to is never compacted, and all of it is read at a start.
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}


class ProgressTopic:
    """The progress of one delivery, by generation.

    Every method raises SinkError where the brokers do not answer, or refuse.
    """

    def __init__(self, servers: str, options: Mapping[str, str], name: str, delivered: Delivered, address: str) -> None:
        self.name = name
        self._servers = servers
        self._options = options
        self._delivered = delivered
        self._address = address
        self._admin: AdminClient

    def read(self) -> dict[int, int]:
        """The newest batch of each generation; the topic is created if it is not there.

        Only the producer of the delivery may ask, once it can send: nobody else's transaction is open then.

        Raises:
            ProgressError: the progress there is of another delivery.
            SinkError: the topic forgets, so that it cannot keep progress.
        """
        try:
            # One that was there before may know no broker but those that are gone.
            self._admin = AdminClient(self._config)
            if self._is_there():
                self._check_kept()
                return self._read()
            self._create()
            return {}
        except KafkaException as error:
            raise translated(cause_of(error), f"topic {self.name!r} of {self._address}") from error

    def record(self, batch: NumberedBatch) -> Record:
        """The record that says that the batch is there; at the position behind its rows."""
        key = {"delivery": batch.delivery, "generation": batch.generation}
        value = {**key, "batch": batch.number, "identity": self._delivered.identity}
        rows = batch.rows.num_rows
        return Record(rows, self.name, _PARTITION, _dumped(key), _dumped(value), [], NOW)

    @cached_property
    def _config(self) -> dict[str, Any]:
        try:
            return for_librdkafka(self._servers, self._options)
        except SourceError as error:
            raise SinkError(str(error)) from error

    def _create(self) -> None:
        topic = NewTopic(self.name, num_partitions=1, replication_factor=-1, config=_CONFIG)
        (future,) = self._admin.create_topics([topic], operation_timeout=_ANSWERS_WITHIN).values()
        future.result(_ANSWERS_WITHIN)

    def _is_there(self) -> bool:
        # Asking for its metadata would have some brokers create it, and not as it has to be.
        (future,) = self._admin.describe_topics(TopicCollection([self.name])).values()
        try:
            future.result(_ANSWERS_WITHIN)
        except KafkaException as error:
            if cause_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    def _check_kept(self) -> None:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.name)]).values()
        try:
            policy = future.result(_ANSWERS_WITHIN)[_CLEANUP].value
        except KafkaException as error:
            # Who may not look has been given the topic by somebody who may.
            if cause_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return
            raise
        if policy != "compact":
            raise SinkError(
                f"topic {self.name!r} of {self._address} is to keep progress, and has {_CLEANUP}={policy}, so that "
                "Kafka removes what it keeps; set it to compact, and the batch is sent again."
            )

    def _read(self) -> dict[int, int]:
        place = TopicPartition(self.name, _PARTITION)
        first, end = (self._offset(place, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        # The group is never joined; a client of a reader has to name one.
        own = {"group.id": "tidemark", "enable.auto.commit": False, "auto.offset.reset": "error"}
        read = {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = Consumer(self._config | own | read)
        newest: dict[int, int] = {}
        deadline = time.monotonic() + _ANSWERS_WITHIN
        try:
            consumer.assign([TopicPartition(self.name, _PARTITION, first)])
            while first < end:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error, offset = message.error(), message.offset()
                assert offset is not None
                if error is None:
                    self._take(message.value(), newest)
                    offset += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                first = offset
        finally:
            consumer.close()
        return newest

    def _take(self, value: str | bytes | None, newest: dict[int, int]) -> None:
        progress = json.loads(value or b"{}")
        # Somebody may have declared one topic for several deliveries.
        if progress.get("delivery") == self._delivered.name:
            check_own(self._delivered, progress["identity"], self._address, f"topic {self.name!r}")
            newest[progress["generation"]] = progress["batch"]

    def _offset(self, place: TopicPartition, spec: OffsetSpec) -> int:
        # Rows of open transactions count: what is behind them may be ours.
        isolation = IsolationLevel.READ_UNCOMMITTED
        (future,) = self._admin.list_offsets({place: spec}, isolation_level=isolation).values()
        return int(future.result(_ANSWERS_WITHIN).offset)


def _dumped(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()

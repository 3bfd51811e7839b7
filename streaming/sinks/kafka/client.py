"""Kafka as a target's client finds it: what its errors mean, and topics that are read to their end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from streaming.base import FencedError, SinkError, SourceError
from streaming.kafka import LastError, for_librdkafka

_OF_A_ROW = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.INVALID_MSG_SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError._UNKNOWN_PARTITION,
)
_OF_ITS_NEIGHBOURS = (KafkaError._INVALID_DIFFERENT_RECORD, KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_NO_RIGHT = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
_ANSWERS_WITHIN = 30.0
_AT_ONCE = 1000


def is_of_a_row(error: KafkaError) -> bool:
    """True if the record itself is refused, and will be whenever it is sent."""
    return error.code() in _OF_A_ROW


def is_of_neighbours(error: KafkaError) -> bool:
    """True if a record was only sent together with one that was refused."""
    return error.code() in _OF_ITS_NEIGHBOURS


def translated(error: KafkaError, address: str, heard: LastError | None = None) -> SinkError | FencedError:
    """The error as a delivery understands it; `heard`: what the client has said of its connections."""
    text = error.str() if heard is None else f"{error.str()}{heard}"
    if error.code() in _FENCED:
        return FencedError(
            f"the transaction in {address} cannot be ended ({text}): another process delivers there, or it was open "
            "for longer than transaction.timeout.ms, so that the brokers ended it. Nothing of it counts. Let one "
            "process run alone; where batches take that long, raise the option, or make batch= smaller."
        )
    if error.code() in _NO_RIGHT:
        advice = (
            "Give the user the rights to write to the topic and to read, write and create that of the progress, and to "
            "use transactional ids that begin with 'tidemark-'"
        )
    elif error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        advice = "Lower transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers (15 minutes)"
    elif error.code() == KafkaError._INVALID_ARG:
        advice = "Correct the options of KafkaTopic"
    elif heard is not None and heard.advice:
        advice = heard.advice
    else:
        advice = "Start the brokers, or correct servers and options of KafkaTopic"
    return SinkError(f"{address} is away: {text}. {advice}; the batch is sent again by itself.")


def cause_of(error: KafkaException) -> KafkaError:
    """The error that the exception is about."""
    cause: KafkaError = error.args[0]
    return cause


@contextmanager
def _answered(address: str) -> Iterator[None]:
    """Errors of the client within it are told as those of a target at the address."""
    try:
        yield
    except KafkaException as error:
        raise translated(cause_of(error), address) from error


class TopicReader:
    """Reads topics without a group, and without a word to whoever writes there.

    Every method raises SinkError where the brokers do not answer, or refuse.
    """

    def __init__(self, servers: str, options: Mapping[str, str], address: str) -> None:
        try:
            self._config: dict[str, Any] = for_librdkafka(servers, options)
        except SourceError as error:
            raise SinkError(str(error)) from error
        self._address = address
        with _answered(address):
            self._admin = AdminClient(self._config)

    def keeps_every_record(self, topic: str) -> bool:
        """True if nothing was removed from the topic so far, neither by its retention nor by compaction."""
        with self._reading(topic):
            return self._is_not_compacted(topic) and not any(self._offsets(topic, OffsetSpec.earliest()).values())

    def keeps_every_key(self, topic: str) -> bool:
        """True if at most compaction has removed something, which leaves the newest record of each key."""
        with self._reading(topic):
            return not any(self._offsets(topic, OffsetSpec.earliest()).values())

    def records(self, topic: str) -> Iterator[Message]:
        """All records, those of a partition in their order."""
        with self._reading(topic):
            yield from self._read(topic)

    def _reading(self, topic: str) -> AbstractContextManager[None]:
        return _answered(f"topic {topic!r} of {self._address}")

    def _read(self, topic: str) -> Iterator[Message]:
        left = {number: end for number, end in self._offsets(topic, OffsetSpec.latest()).items() if end}
        # The group is never joined; a client of a reader has to name one.
        own = {"group.id": "tidemark", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        consumer = Consumer(self._config | own | {"isolation.level": "read_committed", "enable.partition.eof": True})
        heard = time.monotonic()
        try:
            consumer.assign([TopicPartition(topic, number, 0) for number in left])
            while left:
                messages = consumer.consume(_AT_ONCE, 1.0)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _ANSWERS_WITHIN:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                for message in messages:
                    error, number, offset = message.error(), message.partition(), message.offset()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    assert number is not None and offset is not None
                    reached = offset if error is not None else offset + 1
                    if error is None and offset < left.get(number, 0):
                        yield message
                    if reached >= left.get(number, 0):
                        left.pop(number, None)
        finally:
            consumer.close()

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        """By partition; behind the last record, where no transaction is open before it."""
        metadata = self._admin.list_topics(topic, timeout=_ANSWERS_WITHIN).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        asked = {TopicPartition(topic, number): spec for number in metadata.partitions}
        futures = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        return {place.partition: int(future.result(_ANSWERS_WITHIN).offset) for place, future in futures.items()}

    def _is_not_compacted(self, topic: str) -> bool:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        try:
            return "compact" not in (future.result(_ANSWERS_WITHIN)["cleanup.policy"].value or "")
        except KafkaException as error:
            # Who may not ask cannot say that nothing is missing.
            if cause_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return False
            raise

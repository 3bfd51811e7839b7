"""What a consumer of a topic has read once it is at its end."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from tests.support.kafka import READY_WITHIN, Administered


@dataclass(frozen=True)
class Received:
    """A record; `at` is the time that its producer gave it."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    at: datetime | None

    @property
    def json(self) -> Any:
        return None if self.value is None else json.loads(self.value)


def _ends(broker: Administered, topic: str, partitions: list[int]) -> dict[int, int] | None:
    """Behind the last record of each partition, committed or not; None while they have no leader yet."""
    asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    try:
        futures = broker.admin.list_offsets(asked, isolation_level=IsolationLevel.READ_UNCOMMITTED)
        return {place.partition: future.result(30).offset for place, future in futures.items()}
    except KafkaException:
        return None


def received(broker: Administered, topic: str, *, committed: bool = True) -> list[Received]:
    """All records that were sent by now, by partition and offset; `committed`: those of transactions that were."""
    partitions = sorted(broker.admin.list_topics(topic, timeout=30).topics[topic].partitions)
    deadline = time.monotonic() + READY_WITHIN
    while (ends := _ends(broker, topic, partitions)) is None:
        assert time.monotonic() < deadline, f"{topic} has no leader"
    config = {"bootstrap.servers": broker.servers, "group.id": "test", "enable.auto.commit": False, "log_level": 0}
    isolation = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer({**config, "isolation.level": isolation, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    at = dict.fromkeys(partitions, 0)
    records: dict[int, list[Received]] = {partition: [] for partition in partitions}
    while any(at[partition] < ends[partition] for partition in partitions):
        assert time.monotonic() < deadline, f"{topic} cannot be read to its end"
        message = consumer.poll(1)
        if message is None:
            continue
        error, partition, offset = message.error(), message.partition(), message.offset()
        assert partition is not None and offset is not None
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            at[partition] = offset
            continue
        at[partition] = offset + 1
        kind, millis = message.timestamp()
        records[partition].append(
            Received(
                partition,
                message.key(),
                message.value(),
                dict(message.headers() or []),  # type: ignore[arg-type]
                datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis)
                if kind == TIMESTAMP_CREATE_TIME
                else None,
            )
        )
    consumer.close()
    return [record for partition in partitions for record in records[partition]]

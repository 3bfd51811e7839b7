"""A real Kafka broker on this machine, and whoever writes into its topics."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from platform_assets.demo.feeds import free_ports
from platform_assets.demo.feeds.local_kafka import READY_WITHIN, LocalKafka
from tests.support.certificates import self_signed

USER, PASSWORD = "alice", "open sesame"
ROOT, SECRET = "carol", "abracadabra"
_SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "super.users": f"User:ANONYMOUS;User:{ROOT}",
    "message.max.bytes": "20000000",
    "log.cleaner.backoff.ms": "200",
}


@dataclass(frozen=True)
class Message:
    """What a producer sends; `at` is the timestamp of the record."""

    value: bytes | None
    key: bytes | None = None
    at: datetime | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Administered:
    """What administrators of topics do, and those who write into them."""

    servers: str
    admin: AdminClient

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """A topic, and back when the broker tells of it; an underscore in the name of a setting stands for a dot."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        _done(self.admin.create_topics([NewTopic(topic, partitions, config=settings)]))
        self._until(lambda topics: topic in topics and len(topics[topic].partitions) == partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """So many partitions in all."""
        _done(self.admin.create_partitions([NewPartitions(topic, partitions)]))
        self._until(lambda topics: len(topics[topic].partitions) == partitions)

    def delete(self, topic: str) -> None:
        """The topic with all its rows."""
        _done(self.admin.delete_topics([topic]))
        self._until(lambda topics: topic not in topics)

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does: rows before the offset are gone."""
        _done(self.admin.delete_records([TopicPartition(topic, partition, offset)]))

    def send(self, topic: str, messages: Iterable[Message | bytes | str], partition: int = 0, **config: Any) -> None:
        """The messages in order, all of them acknowledged."""
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0, **config})
        _produce(producer, topic, messages, partition)
        assert producer.flush(30) == 0

    def send_transaction(
        self, topic: str, messages: Iterable[Message | bytes | str], partition: int = 0, aborted: bool = False
    ) -> None:
        """The messages in a transaction of their own."""
        config = {"bootstrap.servers": self.servers, "transactional.id": uuid.uuid4().hex, "log_level": 0}
        producer = Producer(config)
        producer.init_transactions(30)
        producer.begin_transaction()
        _produce(producer, topic, messages, partition)
        producer.flush(30)
        if aborted:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)

    def commit(self, group: str, topic: str, offsets: dict[int, int]) -> None:
        """What a consumer group has read."""
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()

    def _until(self, condition: Any) -> None:
        deadline = time.monotonic() + READY_WITHIN
        while not condition(self.admin.list_topics(timeout=10).topics):
            assert time.monotonic() < deadline, "the broker does not do what it was asked"


class Broker(LocalKafka, Administered):
    """One that also has users."""

    def __init__(self, folder: Path) -> None:
        self.secured, self.encrypted = (f"127.0.0.1:{port}" for port in free_ports(2))
        """The same broker, for those who know `USER` and `PASSWORD`; the user may do what `allow` has allowed. And over
        TLS, for who has been let in as `ROOT`, and may do everything."""
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate = self_signed(folder)
        listeners = {"SASL_PLAINTEXT": self.secured, "SASL_SSL": self.encrypted}
        own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.certificate)}
        super().__init__(folder, listeners, {**_SETTINGS, **own})

    def let_in(self) -> None:
        """From now on `ROOT` may come by the `SECRET`, which the broker knows salted and hashed."""
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        credential = UserScramCredentialUpsertion(ROOT, kind, SECRET.encode())
        _done(self.admin.alter_user_scram_credentials([credential]))

    def allow(self, topic: str) -> None:
        """Let the user read a topic."""
        own = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        _done(
            self.admin.create_acls([AclBinding(*own, f"User:{USER}", "*", AclOperation.READ, AclPermissionType.ALLOW)])
        )


def _produce(producer: Producer, topic: str, messages: Iterable[Message | bytes | str], partition: int) -> None:
    for given in messages:
        message = given if isinstance(given, Message) else Message(given.encode() if isinstance(given, str) else given)
        at = {} if message.at is None else {"timestamp": round(message.at.timestamp() * 1000)}
        producer.produce(
            topic,
            message.value,
            message.key,
            partition,
            headers=list(message.headers),
            **at,  # type: ignore[arg-type]
        )
        producer.poll(0)


def _done(futures: Any) -> None:
    for future in futures.values():
        future.result(30)

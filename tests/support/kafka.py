"""A real Kafka broker of one node on this machine, and whoever writes into its topics."""

from __future__ import annotations

import base64
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyspark
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from streaming.spark import BROKER, jars_of, java

READY_WITHIN = 90.0
"""Seconds: a fresh broker takes 4 on an idle machine, one that recovers 10."""

_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{secured}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
log.dirs={folder}/data
num.partitions=1
message.max.bytes=20000000
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
log.cleaner.backoff.ms=200
num.network.threads=2
num.io.threads=2
"""
_LOGGING = """
status=error
rootLogger.level=WARN
rootLogger.appenderRef.s.ref=S
appender.s.type=Console
appender.s.name=S
appender.s.layout.type=PatternLayout
appender.s.layout.pattern=[%d] %p %m (%c)%n
"""
USER, PASSWORD = "alice", "open sesame"


@dataclass(frozen=True)
class Message:
    """What a producer sends; `at` is the timestamp of the record."""

    value: bytes | None
    key: bytes | None = None
    at: datetime | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Broker:
    """One broker, its data in `folder`; it listens on free ports of this machine alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        port, secured, controller = _free_ports(3)
        self.servers = f"127.0.0.1:{port}"
        self.secured = f"127.0.0.1:{secured}"
        """The same broker, for those who know `USER` and `PASSWORD`; the user may do what `allow` has allowed."""
        folder.mkdir(parents=True, exist_ok=True)
        text = _PROPERTIES.format(
            port=port, secured=secured, controller=controller, folder=folder, user=USER, password=PASSWORD
        )
        (folder / "server.properties").write_text(text)
        (folder / "log4j2.properties").write_text(_LOGGING)

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            JarError: its jars are not to be had.
            RuntimeError: it does not start.
        """
        properties = str(self._folder / "server.properties")
        if not (self._folder / "data").exists():
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", properties).wait(READY_WITHIN)
        self._process = self._java("kafka.Kafka", properties)
        deadline = time.monotonic() + READY_WITHIN
        admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                if admin.list_topics(timeout=1).brokers:
                    self.admin = admin
                    return
            except KafkaException:
                continue
        self.kill()
        raise RuntimeError(f"the broker does not answer: {self._output.read_text()[-2000:]}")

    @property
    def _output(self) -> Path:
        return self._folder / "broker.log"

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        # Spark's resolver leaves out what Spark has.
        scala = next(Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar"))
        classes = ":".join(map(str, (*jars_of(BROKER), scala)))
        memory = ("-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        logging = f"-Dlog4j2.configurationFile={self._folder / 'log4j2.properties'}"
        launcher = java.java_launcher() or "java"
        environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [launcher, *memory, logging, "-cp", classes, *arguments],
                stdout=output,
                stderr=output,
                env=environment,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Let it end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """As a power cut would."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """A topic, and back when the broker tells of it; an underscore in the name of a setting stands for a dot."""
        settings = {name.replace("_", "."): value for name, value in config.items()}
        _done(self.admin.create_topics([NewTopic(topic, partitions, 1, config=settings)]))
        self._until(lambda topics: topic in topics and len(topics[topic].partitions) == partitions)

    def allow(self, topic: str) -> None:
        """Let the user read a topic."""
        own = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        _done(
            self.admin.create_acls([AclBinding(*own, f"User:{USER}", "*", AclOperation.READ, AclPermissionType.ALLOW)])
        )

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


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports

"""A Kafka broker on this machine, from jars alone: what the demo and the tests run against."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from platform_assets.demo.feeds.ports import free_ports
from streaming.base import FeedError
from streaming.spark import BROKER, jars_of, java

READY_WITHIN = 90.0
"""Seconds: a fresh broker takes 4 on an idle machine, one that recovers 10."""

_HOST = "127.0.0.1"
_ENDS_WITHIN = 20.0
_PROPERTIES = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "num.network.threads": "2",
    "num.io.threads": "2",
}
_LOGGING = """
status=error
rootLogger.level=WARN
rootLogger.appenderRef.s.ref=S
appender.s.type=Console
appender.s.name=S
appender.s.layout.type=PatternLayout
appender.s.layout.pattern=[%d] %p %m (%c)%n
"""


class LocalKafka:
    """One broker, its data in `folder`, which a later one goes on with; it listens on a free port of this machine.

    `listeners` are further ones, by protocol; `settings` are added to the server's properties. `controllers` are the
    addresses of all nodes of a cluster, of which this one is the `node`th; left out, it is alone.
    """

    admin: AdminClient
    """A client of it, once it runs."""

    def __init__(
        self,
        folder: Path,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, str] | None = None,
        controllers: Sequence[str] = (),
        node: int = 1,
    ) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.servers, alone = (f"{_HOST}:{port}" for port in free_ports(2))
        controllers = controllers or (alone,)
        controller = controllers[node - 1]
        self._voters = ",".join(f"{number}@{address}" for number, address in enumerate(controllers, 1))
        folder.mkdir(parents=True, exist_ok=True)
        clients = {"PLAINTEXT": self.servers, **(listeners or {})}
        advertised = ",".join(f"{protocol}://{address}" for protocol, address in clients.items())
        properties = {
            **_PROPERTIES,
            "node.id": str(node),
            "controller.quorum.voters": self._voters,
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT," + ",".join(f"{name}:{name}" for name in clients),
            "log.dirs": str(folder / "data"),
            **(settings or {}),
        }
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        self._logging.write_text(_LOGGING)

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            JarError, JavaError: its jars or a Java are not to be had.
            FeedError: it does not start.
        """
        if not (self._folder / "data").exists():
            # The nodes of a cluster have its name in common, as they have their controllers.
            cluster = base64.urlsafe_b64encode(uuid.uuid5(uuid.NAMESPACE_OID, self._voters).bytes).decode().rstrip("=")
            # One argument, as the name may begin with a hyphen.
            named = f"--cluster-id={cluster}"
            self._java("kafka.tools.StorageTool", "format", named, "-c", str(self._properties)).wait(READY_WITHIN)
        self._process = self._java("kafka.Kafka", str(self._properties))
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
        raise FeedError(
            f"the Kafka broker in {str(self._folder)!r} does not answer; its log ends with:\n"
            f"{self._output.read_text()[-2000:]}\nRemove the folder to begin with an empty one."
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

    @property
    def _properties(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _logging(self) -> Path:
        return self._folder / "log4j2.properties"

    @property
    def _output(self) -> Path:
        return self._folder / "broker.log"

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        # Spark's resolver leaves out what Spark has.
        scala = next(Path(pyspark.__file__).parent.glob("jars/scala-library-*.jar"))
        classes = ":".join(map(str, (*jars_of(BROKER), scala)))
        memory = ("-Xms128m", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        launcher = java.java_launcher() or "java"
        environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
        with self._output.open("ab") as output:
            return subprocess.Popen(
                [launcher, *memory, f"-Dlog4j2.configurationFile={self._logging}", "-cp", classes, *arguments],
                stdout=output,
                stderr=output,
                env=environment,
                # Ctrl-C is for whoever started it.
                start_new_session=True,
            )

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            try:
                self._process.wait(_ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

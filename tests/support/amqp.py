"""Real brokers of AMQP 0-9-1: Qpid Broker-J, from jars alone, and RabbitMQ, where that program is installed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pika
import psutil
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError

from platform_assets.demo.feeds import free_ports
from streaming.spark.jars import JarGroup, jars_of
from streaming.spark.java import java_launcher
from tests.support.certificates import self_signed
from tests.support.waiting import until

QPID = JarGroup(
    "qpid",
    "a broker of AMQP on this machine",
    # One by one: what the whole of it depends on is not in every repository.
    tuple(
        (coordinate,)
        for coordinate in (
            "org.apache.qpid:qpid-broker:9.2.0",
            "org.apache.qpid:qpid-broker-core:9.2.0",
            "org.apache.qpid:qpid-broker-plugins-amqp-0-8-protocol:9.2.0",
            "org.apache.qpid:qpid-broker-plugins-derby-store:9.2.0",
            "org.apache.qpid:qpid-broker-plugins-jdbc-store:9.2.0",
            "org.apache.qpid:qpid-broker-plugins-logging-logback:9.2.0",
            "org.apache.derby:derby:10.14.2.0",
            "org.bouncycastle:bcpkix-jdk18on:1.77",
            "org.bouncycastle:bcprov-jdk18on:1.77",
            "org.bouncycastle:bcutil-jdk18on:1.77",
            "ch.qos.logback:logback-classic:1.4.14",
            "ch.qos.logback:logback-core:1.4.14",
            "org.slf4j:slf4j-api:2.0.11",
            "com.fasterxml.jackson.core:jackson-annotations:2.16.1",
            "com.fasterxml.jackson.core:jackson-core:2.16.1",
            "com.fasterxml.jackson.core:jackson-databind:2.16.1",
            "com.google.guava:guava:33.0.0-jre",
            "com.google.guava:failureaccess:1.0.2",
            "commons-cli:commons-cli:1.6.0",
        )
    ),
)
_STARTS_WITHIN, _ENDS_WITHIN = 60.0, 20.0
_RABBITMQ = "/usr/lib/rabbitmq/bin"
"""Where Debian has the program itself; what is on the path there changes to an account of its own."""


class Broker(ABC):
    """A broker in a folder that can be killed and started again, with its durable queues and their messages."""

    virtual_host: str

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.ports = free_ports(4)
        self.port = self.ports[0]
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        """The program with its arguments, and its environment."""

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: it does not.
        """
        command, environment = self._command()
        output = self.folder / "output"
        with output.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        try:
            until(lambda: not self._runs or self._answers(), "up", _STARTS_WITHIN)
        except BaseException:
            self.end(killed=True)
            raise
        if not self._runs:
            raise RuntimeError(f"the broker has ended; its log ends with:\n{output.read_text()[-2_000:]}")

    @property
    def _runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def end(self, *, killed: bool = False) -> None:
        """End it, or kill it with all that it has started."""
        if self._process is not None and self._process.poll() is None:
            if killed:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.terminate()
            self._process.wait(_ENDS_WITHIN)

    def declare(self, queue: str, **arguments: Any) -> None:
        """A durable queue; an underscore in the name of an argument stands for a hyphen."""
        named = {name.replace("_", "-"): value for name, value in arguments.items()}
        with self._channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=named)

    def delete(self, queue: str) -> None:
        """The queue is gone, with its messages."""
        with self._channel() as channel:
            channel.queue_delete(queue)

    def publish(self, queue: str, *payloads: bytes, **properties: Any) -> None:
        """Publish persistent messages, and wait until the broker has them."""
        with self._channel() as channel:
            # Qpid confirms nothing, and a quorum queue of RabbitMQ is in no transaction.
            confirms = channel.connection.publisher_confirms_supported
            channel.confirm_delivery() if confirms else channel.tx_select()
            for payload in payloads:
                told = pika.BasicProperties(delivery_mode=2, **properties)
                until(partial(_is_taken, channel, queue, payload, told), "taken by the broker")
            if not confirms:
                channel.tx_commit()

    def waiting(self, queue: str) -> int:
        """Messages that nobody has taken."""
        with self._channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

    def _answers(self) -> bool:
        try:
            with self._channel():
                return True
        except (AMQPError, OSError):
            return False

    @contextmanager
    def _channel(self) -> Iterator[BlockingChannel]:
        parameters = pika.ConnectionParameters("127.0.0.1", self.port, self.virtual_host, socket_timeout=10)
        with pika.BlockingConnection(parameters) as connection:
            yield connection.channel()


class Qpid(Broker):
    """Apache Qpid Broker-J with a Derby store: a JVM, for every day."""

    virtual_host = "default"

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        settings = {
            "name": "broker",
            "modelVersion": "9.0",
            "authenticationproviders": [
                {
                    "name": "plain",
                    "type": "Plain",
                    "secureOnlyMechanisms": [],
                    "users": [{"name": "guest", "type": "managed", "password": "guest"}],
                }
            ],
            "ports": [
                {
                    "name": "AMQP",
                    "port": str(self.port),
                    "authenticationProvider": "plain",
                    "protocols": ["AMQP_0_9_1"],
                    "bindingAddress": "127.0.0.1",
                    "virtualhostaliases": [{"name": "nameAlias", "type": "nameAlias"}],
                }
            ],
            "virtualhostnodes": [
                {
                    "name": self.virtual_host,
                    "type": "JSON",
                    "defaultVirtualHostNode": "true",
                    "virtualHostInitialConfiguration": json.dumps({"type": "DERBY"}),
                }
            ],
        }
        (self.folder / "initial.json").write_text(json.dumps(settings))
        jars = ":".join(str(jar) for jar in jars_of(QPID))
        java = (java_launcher() or "java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        own = ("-icp", str(self.folder / "initial.json"), "-prop", f"qpid.work_dir={self.folder}")
        environment = {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}
        derby = f"-Dderby.stream.error.file={self.folder}/derby.log"
        return (*java, derby, "-cp", jars, "org.apache.qpid.server.Main", *own), environment


class RabbitMqServer(Broker):
    """RabbitMQ itself; where that program is not installed there is none."""

    virtual_host = "/"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.encrypted = self.ports[3]
        """The port on which it speaks TLS."""
        self.certificate = self_signed(folder)
        (folder / "rabbitmq.conf").write_text(
            f"listeners.ssl.1 = 127.0.0.1:{self.encrypted}\n"
            f"ssl_options.certfile = {self.certificate}\nssl_options.keyfile = {self.certificate}\n"
        )

    def _command(self) -> tuple[Sequence[str], Mapping[str, str]]:
        program = shutil.which("rabbitmq-server", path=f"{_RABBITMQ}{os.pathsep}{os.environ['PATH']}")
        if program is None:
            pytest.skip("there is no program rabbitmq-server")
        own = {
            "HOME": str(self.folder),
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.ports[1]),
            "ERL_EPMD_PORT": str(self.ports[2]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(self.folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
        }
        return (program,), {**os.environ, **own}

    def declare(self, queue: str, **arguments: Any) -> None:
        """A durable queue, which is there after a kill.

        RabbitMQ 3.10 answers before it has written the name of a quorum queue; one that it has not has no leader ever.
        """
        super().declare(queue, **arguments)
        if arguments.get("x_queue_type") == "quorum":
            until(partial(self._names, queue), "a quorum queue that is there after a kill")

    def _names(self, queue: str) -> bool:
        names = self.folder.glob("mnesia/*/quorum/*/names.dets")
        return any(f"%2F_{queue}".encode() in each.read_bytes() for each in names)

    def end(self, *, killed: bool = False) -> None:
        """End it, or kill it; the daemon of Erlang that knows nodes by their names is ended with it."""
        super().end(killed=killed)
        for process in psutil.process_iter(["name"]):
            if process.name() == "epmd" and process.environ().get("ERL_EPMD_PORT") == str(self.ports[2]):
                process.kill()


def _is_taken(channel: BlockingChannel, queue: str, payload: bytes, properties: pika.BasicProperties) -> bool:
    """Publish a message; false where the broker says that it has not taken it, as a quorum without a leader does."""
    try:
        channel.basic_publish("", queue, payload, properties)
    except NackError:
        return False
    return True

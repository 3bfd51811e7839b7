"""Messages of a queue of RabbitMQ, or another broker of AMQP 0-9-1, which keeps each of them until it is landed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from streaming.base import DeclarationError, check_number, check_type, needs
from streaming.sources.receivers.connector import Received, Reception
from streaming.sources.receivers.messages import MessageBroker

_LONGEST_NAME = 255
"""Bytes of a name in AMQP 0-9-1."""
_LARGEST_PREFETCH = 65_535
"""AMQP 0-9-1 has two bytes for it."""


@dataclass(frozen=True)
class RabbitMq(MessageBroker):
    """Takes the messages of `queue` from a broker of AMQP 0-9-1, each with its acknowledgement once it is landed.

    The queue is there, with its bindings: no receiver declares one. At least once, for durable queues and persistent
    messages; others are lost if the broker ends. Several receivers of one queue share its messages. A stream of
    RabbitMQ is refused, as its broker does not keep in mind how far it was read.

    A row is the payload, in which line breaks become spaces. With `envelope` it is an object with `exchange`,
    `routing_key`, `redelivered` (true of a message that was handed out before, so that it may have landed),
    `message_id`, `timestamp` (seconds since 1970) and `headers`, each null where the sender gave none, and `payload`, a
    text; or with `payload_base64` where the payload is no UTF-8. A message that is longer than `longest_message` bytes
    is refused and counted: the broker gives it to the dead-letter exchange of the queue, if that has one. One whose
    headers cannot be read is no JSON in its envelope, so that its row is rejected: a text that says why, and has the
    payload and, as `properties_base64`, the bytes of its properties. Without an envelope its payload is a row as any.

    `prefetch`: the most messages that the broker hands out before they are landed. Once so many have come they land at
    once, however old they are.

    `ssl`: the connection is encrypted, and the broker must show a certificate for `host`, signed by somebody whom this
    machine trusts, or by who is in the PEM file `ca`; the port is 5671 then, unless another is given, and else 5672.
    `password` names a variable of the environment. Without a `user` it is `guest`, whom RabbitMQ takes from its own
    machine only.

    Raises:
        DeclarationError: a name, the port, an interval or a number cannot be.
        MissingExtra: the client of AMQP is not installed.
    """

    host: str
    queue: str
    port: int | None = None
    virtual_host: str = "/"
    prefetch: int = 50_000

    def __post_init__(self) -> None:
        needs("pika", f"messages of RabbitMQ from {self.host}")
        self.check_access(self.host)
        check_type("queue of RabbitMq", self.queue, str, "the name of a queue, such as 'orders'")
        if not 0 < len(self.queue.encode()) <= _LONGEST_NAME or "\0" in self.queue or self.queue.startswith("amq."):
            raise DeclarationError(
                f"queue={self.queue!r} of RabbitMq cannot be the name of a queue that stays",
                f"write one of 1 to {_LONGEST_NAME} bytes that does not begin with 'amq.'.",
                field="queue",
                value=self.queue,
            )
        check_type("virtual_host of RabbitMq", self.virtual_host, str, "the name of a virtual host, such as '/'")
        if self.port is not None:
            check_number(f"port={self.port!r} of RabbitMq", self.port, "port")
        check_number(f"prefetch={self.prefetch!r} of RabbitMq", self.prefetch, "number of messages")
        if self.prefetch > _LARGEST_PREFETCH:
            raise DeclarationError(
                f"prefetch={self.prefetch!r} of RabbitMq is more than AMQP can ask for",
                f"write 1 to {_LARGEST_PREFETCH}.",
                field="prefetch",
                value=self.prefetch,
            )
        if (self.user is None) != (self.password is None):
            raise DeclarationError(
                f"user={self.user!r} and password={self.password!r} of RabbitMq belong together",
                "name both, the password by a variable of the environment, or leave both out.",
            )

    @property
    def address(self) -> str:
        """Scheme, host and port, the virtual host where it is not the usual one, and the queue."""
        host = "" if self.virtual_host == "/" else f", virtual host {self.virtual_host}"
        return f"{'amqps' if self.ssl else 'amqp'}://{self.host}:{self.port_number}{host}, queue {self.queue}"

    @property
    def port_number(self) -> int:
        """The port, that of the protocol where none is given."""
        return self.port or (5671 if self.ssl else 5672)

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The messages as they come; the broker is told of those that are landed.

        Raises:
            ReceiverError: the broker is away, or refuses, or there is no such queue.
        """
        # Only who receives from RabbitMQ loads the client.
        from streaming.sources.receivers.rabbitmq_queue import BrokerQueue, consuming

        there = BrokerQueue(self.host, self.port_number, self.virtual_host, self.queue, self.prefetch)
        with consuming(self, there) as queue:
            yield Received()
            while True:
                yield queue.portion()

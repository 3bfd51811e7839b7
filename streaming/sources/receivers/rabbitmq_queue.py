"""A queue consumed by AMQP 0-9-1: connected, and read in portions that are acknowledged once they are landed."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from pika import BlockingConnection, ConnectionParameters, PlainCredentials, SSLOptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ChannelWrongStateError,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)
from pika.spec import Basic, BasicProperties

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, PORTION_BYTES, PORTION_ROWS, Received
from streaming.sources.receivers.messages import payload_fields, secret
from streaming.sources.receivers.web import on_one_line

_HEARTBEAT = 60
"""Seconds, where a broker proposes none."""
_UNREADABLE = tuple(
    f"Stream connection lost: {name}("
    for name in (
        *("ValueError", "OverflowError", "UnicodeDecodeError"),
        *("InvalidFieldTypeException", "UnsupportedAMQPFieldException"),
    )
)
"""The words of the client, Pika, about values in a message that it cannot decode."""
_OF_STREAM = "x-stream-offset"
"""The header that RabbitMQ gives each message of a stream."""


@dataclass(frozen=True)
class BrokerAccess:
    """Where a broker is, and who comes; `password` names a variable, `within` are seconds."""

    host: str
    port: int
    virtual_host: str
    user: str | None
    password: str | None
    encrypted: bool
    ca: str | None
    within: float


@dataclass(frozen=True)
class Consumption:
    """Which queue is consumed, and how its messages become rows."""

    address: str
    queue: str
    prefetch: int
    envelope: bool
    longest: int


@contextmanager
def consuming(declared: Consumption, access: BrokerAccess) -> Iterator[ConsumedQueue]:
    """The queue, consumed for as long as the body lasts.

    Raises:
        ReceiverError: the broker cannot be reached, or refuses; or a variable or certificate is not there.
    """
    connection = _connected(declared, access)
    try:
        try:
            channel = connection.channel()
            # Passively: who declared the queue knows its bindings and arguments.
            channel.queue_declare(declared.queue, passive=True)
            channel.basic_qos(prefetch_count=declared.prefetch)
            consumed = ConsumedQueue(declared, connection, channel)
        except ChannelClosedByBroker as error:
            raise ReceiverError(
                f"{declared.address} cannot be consumed ({error.reply_text}); declare and bind the queue at the "
                "broker, or correct its name or who may read it."
            ) from error
        except AMQPError as error:
            raise _ended(declared.address, error) from error
        yield consumed
    finally:
        # What is not acknowledged goes back to the queue.
        with suppress(AMQPError):
            connection.close()


def _connected(declared: Consumption, access: BrokerAccess) -> BlockingConnection:
    optional: dict[str, Any] = {}
    if access.user is not None and access.password is not None:
        optional["credentials"] = PlainCredentials(access.user, secret(declared.address, access.password))
    try:
        if access.encrypted:
            optional["ssl_options"] = SSLOptions(ssl.create_default_context(cafile=access.ca), access.host)
        return BlockingConnection(
            ConnectionParameters(
                access.host,
                access.port,
                access.virtual_host,
                socket_timeout=access.within,
                stack_timeout=access.within,
                # Without one, who is cut off from the network would wait for ever.
                heartbeat=lambda _, proposed: int(proposed) or _HEARTBEAT,
                client_properties={"connection_name": f"tidemark receiver of {declared.queue}"},
                **optional,
            )
        )
    except (ProbableAuthenticationError, ProbableAccessDeniedError) as error:
        raise ReceiverError(
            f"{declared.address} refuses {access.user or 'guest'} ({_reason(error)}); correct user, password or "
            "virtual_host, or let them in there."
        ) from error
    except (AMQPError, OSError) as error:
        raise ReceiverError(
            f"{declared.address} cannot be reached ({_reason(error)}); start the broker, or correct the declaration."
        ) from error


def _ended(address: str, error: BaseException) -> ReceiverError:
    reason = _reason(error)
    # The client ends the connection then, and keeps of its error the text alone.
    if reason.startswith(_UNREADABLE):
        return ReceiverError(
            f"{address} gives a message whose headers cannot be read ({reason}), and gives it again on each "
            "connection; take it out of the queue there, and correct its sender."
        )
    return ReceiverError(f"{address} has ended the connection ({reason}).")


def _reason(error: BaseException) -> str:
    """The words of an error of the client, which wraps that of the socket in others without any."""
    if isinstance(error, ChannelClosedByBroker | ConnectionClosedByBroker):
        return str(error.reply_text)
    inner = getattr(error, "exception", None) or next(iter(error.args), None)
    return _reason(inner) if isinstance(inner, BaseException) else str(error) or type(error).__name__


@dataclass(frozen=True)
class _Message:
    tag: int
    row: bytes | None
    """None of one that is refused."""


class ConsumedQueue:
    """Reads in the thread of its caller alone: while nobody asks for a portion, the broker is held up."""

    def __init__(self, declared: Consumption, connection: BlockingConnection, channel: BlockingChannel) -> None:
        self._declared = declared
        self._connection = connection
        self._channel = channel
        self._messages: list[_Message] = []
        self._size = 0
        self._unacknowledged = 0
        self._refusal = ""
        channel.add_on_cancel_callback(self._on_cancel)
        channel.basic_consume(declared.queue, self._on_message)

    def portion(self) -> Received:
        """The messages that have come, and what acknowledges them; none where nothing comes for a while.

        Raises:
            ReceiverError: the connection has ended, or the queue is gone, or a stream.
        """
        if not self._messages:
            self._read(IDLE)
        number = 0
        while number < len(self._messages) < PORTION_ROWS and self._size < PORTION_BYTES:
            number = len(self._messages)
            self._read(0)
        messages, self._messages, self._size = self._messages, [], 0
        if not messages:
            return Received()
        self._unacknowledged += len(messages)
        rows = [message.row for message in messages if message.row is not None]
        return Received(
            rows,
            refused=len(messages) - len(rows),
            landed=partial(self._acknowledge, messages),
            waits=self._unacknowledged >= self._declared.prefetch,
        )

    def _acknowledge(self, messages: Sequence[_Message]) -> None:
        self._unacknowledged -= len(messages)
        # Where the connection is gone, the messages come again.
        with suppress(AMQPError):
            # Brokers without this word of RabbitMQ's may hand out again, for ever, what is rejected.
            if self._connection.basic_nack_supported:
                for message in messages:
                    if message.row is None:
                        self._channel.basic_nack(message.tag, requeue=False)
                # A broker closes the channel where a tag is acknowledged that was rejected.
                messages = [message for message in messages if message.row is not None]
            if messages:
                # Which takes along those before it.
                self._channel.basic_ack(messages[-1].tag, multiple=True)

    def _read(self, within: float) -> None:
        try:
            self._connection.process_data_events(within)
        except AMQPError as error:
            raise _ended(self._declared.address, error) from error
        if self._refusal:
            raise ReceiverError(f"{self._declared.address} {self._refusal}")
        if self._channel.is_closed:
            # The client says it only to who waits for an answer on the channel, and keeps the reason to itself.
            reason = getattr(self._channel, "_closing_reason", None)
            raise _ended(self._declared.address, reason or ChannelWrongStateError("the channel is closed"))

    def _on_message(
        self, channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, payload: bytes
    ) -> None:
        if _OF_STREAM in (properties.headers or {}):
            self._refusal = (
                "is a stream, of which the broker does not keep in mind how far it was read; receive from a queue "
                "that is bound to the same exchange."
            )
        row = None if len(payload) > self._declared.longest else self._row(method, properties, payload)
        self._messages.append(_Message(method.delivery_tag, row))
        self._size += len(row or b"")

    def _on_cancel(self, frame: Any) -> None:
        self._refusal = "gives no more, as its queue was deleted or is moving; declare it again where it is gone."

    def _row(self, method: Basic.Deliver, properties: BasicProperties, payload: bytes) -> bytes:
        if not self._declared.envelope:
            return on_one_line(payload)
        told = {
            "exchange": method.exchange,
            "routing_key": method.routing_key,
            "redelivered": method.redelivered,
            "message_id": properties.message_id,
            "timestamp": properties.timestamp,
            "headers": properties.headers,
            **payload_fields(payload),
        }
        return json.dumps(told, ensure_ascii=False, default=_in_json).encode()


def _in_json(value: object) -> str:
    """A value of a header that JSON has no word for."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.isoformat() if isinstance(value, datetime) else str(value)

"""A queue consumed by AMQP 0-9-1: connected, and read in portions that are acknowledged once they are landed."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from struct import Struct
from typing import Any

from pika import BlockingConnection, ConnectionParameters, PlainCredentials, SSLOptions
from pika.adapters.blocking_connection import BlockingChannel
from pika.adapters.select_connection import SelectConnection
from pika.exceptions import (
    AMQPError,
    ChannelClosedByBroker,
    ChannelWrongStateError,
    ConnectionClosedByBroker,
    InvalidFrameError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)
from pika.frame import Header
from pika.spec import FRAME_END_SIZE, FRAME_HEADER, Basic, BasicProperties

from streaming.base import ReceiverError
from streaming.sources.receivers.messages import Message, MessageBroker, MessagePortions, payload_fields
from streaming.sources.receivers.web import on_one_line

_HEARTBEAT = 60
"""Seconds, where a broker proposes none."""
_UNREADABLE = tuple(f"Stream connection lost: {name}(" for name in ("ValueError", "UnicodeDecodeError"))
"""The words of the client, Pika, about the names of an exchange or key that it cannot decode."""
_FRAME, _CONTENT = Struct(">BHL"), Struct(">HHQ")
"""The beginning of a frame: kind, channel and size; and of its content where that are properties, with the length."""
_OF_STREAM = "x-stream-offset"
"""The header that RabbitMQ gives each message of a stream."""


@dataclass(frozen=True)
class BrokerQueue:
    """A queue, the place of its broker, and the most messages that this hands out before they are acknowledged."""

    host: str
    port: int
    virtual_host: str
    name: str
    prefetch: int


class _UnreadProperties(BasicProperties):
    """The properties of a message that the client cannot decode, as they came, and why."""

    def __init__(self, encoded: bytes, reason: str) -> None:
        super().__init__()
        self.encoded = encoded
        self.reason = reason


class _TolerantConnection(SelectConnection):
    """A connection that goes on behind a message whose properties it cannot decode."""

    def _read_frame(self) -> tuple[int, Any]:
        try:
            return super()._read_frame()
        except InvalidFrameError:
            raise
        # A sender may write anything there, and the client's decoders raise whatever they come upon.
        except Exception as error:
            kind, channel, size = _FRAME.unpack_from(self._frame_buffer)
            if kind != FRAME_HEADER:
                raise
            content = bytes(self._frame_buffer[_FRAME.size : _FRAME.size + size])
            _, _, length = _CONTENT.unpack_from(content)
            properties = _UnreadProperties(content[_CONTENT.size :], f"{type(error).__name__}: {error}")
            return _FRAME.size + size + FRAME_END_SIZE, Header(channel, length, properties)


@contextmanager
def consuming(broker: MessageBroker, queue: BrokerQueue) -> Iterator[ConsumedQueue]:
    """The queue, consumed for as long as the body lasts.

    Raises:
        ReceiverError: the broker cannot be reached, or refuses; or a variable or certificate is not there.
    """
    connection = _connected(broker, queue)
    try:
        try:
            channel = connection.channel()
            # Passively: who declared the queue knows its bindings and arguments.
            channel.queue_declare(queue.name, passive=True)
            channel.basic_qos(prefetch_count=queue.prefetch)
            consumed = ConsumedQueue(broker, queue, connection, channel)
        except ChannelClosedByBroker as error:
            raise ReceiverError(
                f"{broker.address} cannot be consumed ({error.reply_text}); declare and bind the queue at the "
                "broker, or correct its name or who may read it."
            ) from error
        except AMQPError as error:
            raise _ended(broker.address, error) from error
        yield consumed
    finally:
        # What is not acknowledged goes back to the queue.
        with suppress(AMQPError):
            connection.close()


def _connected(broker: MessageBroker, queue: BrokerQueue) -> BlockingConnection:
    optional: dict[str, Any] = {}
    password = broker.secret()
    if broker.user is not None and password is not None:
        optional["credentials"] = PlainCredentials(broker.user, password)
    try:
        encryption = broker.encryption()
        if encryption is not None:
            optional["ssl_options"] = SSLOptions(encryption, queue.host)
        return BlockingConnection(
            ConnectionParameters(
                queue.host,
                queue.port,
                queue.virtual_host,
                socket_timeout=broker.seconds_to_connect,
                stack_timeout=broker.seconds_to_connect,
                # Without one, who is cut off from the network would wait for ever.
                heartbeat=lambda _, proposed: int(proposed) or _HEARTBEAT,
                client_properties={"connection_name": f"tidemark receiver of {queue.name}"},
                **optional,
            ),
            _impl_class=_TolerantConnection,
        )
    except (ProbableAuthenticationError, ProbableAccessDeniedError) as error:
        raise ReceiverError(
            f"{broker.address} refuses {broker.user or 'guest'} ({_reason(error)}); correct user, password or "
            "virtual_host, or let them in there."
        ) from error
    except (AMQPError, OSError) as error:
        raise ReceiverError(
            f"{broker.address} cannot be reached ({_reason(error)}); start the broker, or correct the declaration."
        ) from error


def _ended(address: str, error: BaseException) -> ReceiverError:
    reason = _reason(error)
    # The client ends the connection then, and keeps of its error the text alone.
    if reason.startswith(_UNREADABLE):
        return ReceiverError(
            f"{address} gives a message whose exchange or routing key cannot be read ({reason}), and gives it again on "
            "each connection; take it out of the queue there, and correct its sender."
        )
    return ReceiverError(f"{address} has ended the connection ({reason}).")


def _reason(error: BaseException) -> str:
    """The words of an error of the client, which wraps that of the socket in others without any."""
    if isinstance(error, ChannelClosedByBroker | ConnectionClosedByBroker):
        return str(error.reply_text)
    inner = getattr(error, "exception", None) or next(iter(error.args), None)
    return _reason(inner) if isinstance(inner, BaseException) else str(error) or type(error).__name__


class ConsumedQueue(MessagePortions[int]):
    """A queue that is consumed; its messages are known by their tags."""

    def __init__(
        self, broker: MessageBroker, queue: BrokerQueue, connection: BlockingConnection, channel: BlockingChannel
    ) -> None:
        super().__init__(queue.prefetch)
        self._broker = broker
        self._connection = connection
        self._channel = channel
        self._refusal = ""
        channel.add_on_cancel_callback(self._on_cancel)
        channel.basic_consume(queue.name, self._on_message)

    def _acknowledge(self, messages: Sequence[Message[int]]) -> None:
        # Where the connection is gone, the messages come again.
        with suppress(AMQPError):
            # Brokers without this word of RabbitMQ's may hand out again, for ever, what is rejected.
            if self._connection.basic_nack_supported:
                for message in messages:
                    if message.row is None:
                        self._channel.basic_nack(message.handle, requeue=False)
                # A broker closes the channel where a tag is acknowledged that was rejected.
                messages = [message for message in messages if message.row is not None]
            if messages:
                # Which takes along those before it.
                self._channel.basic_ack(messages[-1].handle, multiple=True)

    def _read(self, within: float) -> None:
        try:
            self._connection.process_data_events(within)
        except AMQPError as error:
            raise _ended(self._broker.address, error) from error
        if self._refusal:
            raise ReceiverError(f"{self._broker.address} {self._refusal}")
        if self._channel.is_closed:
            # The client says it only to who waits for an answer on the channel, and keeps the reason to itself.
            reason = getattr(self._channel, "_closing_reason", None)
            raise _ended(self._broker.address, reason or ChannelWrongStateError("the channel is closed"))

    def _on_message(
        self, channel: BlockingChannel, method: Basic.Deliver, properties: BasicProperties, payload: bytes
    ) -> None:
        if _OF_STREAM in (properties.headers or {}):
            self._refusal = (
                "is a stream, of which the broker does not keep in mind how far it was read; receive from a queue "
                "that is bound to the same exchange."
            )
        row = None if len(payload) > self._broker.longest_message else self._row(method, properties, payload)
        self._take(Message(method.delivery_tag, row))

    def _on_cancel(self, frame: Any) -> None:
        self._refusal = "gives no more, as its queue was deleted or is moving; declare it again where it is gone."

    def _row(self, method: Basic.Deliver, properties: BasicProperties, payload: bytes) -> bytes:
        if not self._broker.envelope:
            return on_one_line(payload)
        sent = {"exchange": method.exchange, "routing_key": method.routing_key, "redelivered": method.redelivered}
        if isinstance(properties, _UnreadProperties):
            encoded = base64.b64encode(properties.encoded).decode()
            unread = json.dumps({**sent, "properties_base64": encoded, **payload_fields(payload)}, ensure_ascii=False)
            # No JSON, so that a stream rejects it, and has both with the row that it rejects.
            return on_one_line(f"headers cannot be read ({properties.reason}) of the message {unread}".encode())
        told = {
            **sent,
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

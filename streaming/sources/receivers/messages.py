"""The common parts of connectors to brokers of messages: who comes and how, and portions that are acknowledged."""

from __future__ import annotations

import base64
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from ssl import SSLContext, create_default_context
from typing import ClassVar, Generic, TypeVar

from streaming.base import DeclarationError, ReceiverError, check_number, check_type, interval
from streaming.sources.receivers.connector import (
    IDLE,
    PORTION_BYTES,
    PORTION_ROWS,
    Connector,
    LandingGuarantee,
    Received,
)

Handle = TypeVar("Handle")
"""The value by which a client acknowledges a message."""


@dataclass(frozen=True, kw_only=True)
class MessageBroker(Connector):
    """A broker that keeps each message until it is landed: how a message becomes a row, and how the broker is reached.

    A row is the payload, in which line breaks become spaces; with `envelope` an object that has it. A message that is
    longer than `longest_message` bytes is refused and counted.

    `ssl`: the connection is encrypted, and the broker must show a certificate for its host, signed by somebody whom
    this machine trusts, or by who is in the PEM file `ca`. `password` names a variable of the environment.
    """

    envelope: bool = False
    longest_message: int = 1_000_000
    user: str | None = None
    password: str | None = None
    ssl: bool = False
    ca: str | None = None
    connects_within: str = "10 seconds"

    guarantee: ClassVar[LandingGuarantee] = "at least once"

    def check_access(self, host: object) -> None:
        """Refuse what cannot be a host, a number of bytes or an interval, and a `ca` that checks nothing.

        Raises:
            DeclarationError: with the value.
        """
        of = type(self).__name__
        check_type(f"host of {of}", host, str, "a name or an address, such as 'broker.example'")
        check_number(f"longest_message={self.longest_message!r} of {of}", self.longest_message, "number of bytes")
        interval(self.connects_within)
        if self.ca is not None and not self.ssl:
            raise DeclarationError(
                f"ca={self.ca!r} of {of} checks nothing without ssl=True", "add that, or leave ca out."
            )

    @property
    def seconds_to_connect(self) -> float:
        """The seconds within which the broker has to answer."""
        return interval(self.connects_within).total_seconds()

    def encryption(self) -> SSLContext | None:
        """Whom to trust on an encrypted connection; None where it is not encrypted.

        Raises:
            OSError: there is no such file of certificates.
        """
        return create_default_context(cafile=self.ca) if self.ssl else None

    def secret(self) -> str | None:
        """The password; None where there is none.

        Raises:
            ReceiverError: its variable of the environment is not set.
        """
        if self.password is None:
            return None
        if self.password not in os.environ:
            raise ReceiverError(f"{self.address} needs {self.password} in the environment, which is not set; set it.")
        return os.environ[self.password]


@dataclass(frozen=True)
class Message(Generic[Handle]):
    """A message that came; its `row` is None where it is refused.

    `is_in_flight`: it is one of those that the broker hands out at most before they are acknowledged, and that it
    gives again where they are not.
    """

    handle: Handle
    row: bytes | None
    is_in_flight: bool = True


class MessagePortions(ABC, Generic[Handle]):
    """Messages in portions, acknowledged once they are landed.

    The client is asked in the thread of the caller alone: while nobody asks for a portion, the broker is held up.
    `in_flight` is how many the broker hands out at most before they are acknowledged.
    """

    def __init__(self, in_flight: int) -> None:
        self._in_flight = in_flight
        self._unacknowledged = 0
        self._messages: list[Message[Handle]] = []
        self._size = 0

    @abstractmethod
    def _read(self, within: float) -> None:
        """Let the client take what comes within so many seconds, and hand each message to `_take`.

        Raises:
            ReceiverError: the connection has ended.
        """

    @abstractmethod
    def _acknowledge(self, messages: Sequence[Message[Handle]]) -> None:
        """Tell the broker that these are landed, or refused; where the connection is gone, they come again."""

    def _take(self, message: Message[Handle]) -> None:
        self._messages.append(message)
        self._size += len(message.row or b"")

    def portion(self) -> Received:
        """The messages that have come, and what acknowledges them; none where nothing comes for a while.

        Raises:
            ReceiverError: the connection has ended, or the broker gives no more.
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
        self._unacknowledged += sum(message.is_in_flight for message in messages)
        rows = [message.row for message in messages if message.row is not None]
        return Received(
            rows,
            refused=len(messages) - len(rows),
            landed=partial(self._landed, messages),
            comes_again=all(message.is_in_flight for message in messages),
            waits=self._unacknowledged >= self._in_flight,
        )

    def _landed(self, messages: Sequence[Message[Handle]]) -> None:
        self._unacknowledged -= sum(message.is_in_flight for message in messages)
        self._acknowledge(messages)


def payload_fields(payload: bytes | bytearray) -> dict[str, str]:
    """The payload as a field of an envelope: `payload`, or `payload_base64` where it is no UTF-8."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}

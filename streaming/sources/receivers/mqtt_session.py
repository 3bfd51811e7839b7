"""A session at a broker of MQTT: connected, and read in portions that are acknowledged once they are landed."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE, PORTION_BYTES, PORTION_ROWS, Received
from streaming.sources.receivers.messages import payload_fields, secret
from streaming.sources.receivers.web import on_one_line

_IN_FLIGHT = 65_535
"""The most messages that MQTT lets a broker hand out without an acknowledgement."""
_FAILED = 128
"""Reason codes from here on are refusals."""


class MqttSession:
    """Reads in the thread of its caller alone: while nobody asks for a portion, the broker is held up."""

    def __init__(
        self,
        address: str,
        client_id: str,
        topics: Sequence[str],
        *,
        session_seconds: int,
        envelope: bool,
        longest: int,
    ) -> None:
        self._address = address
        self._topics = topics
        self._session_seconds = session_seconds
        self._envelope = envelope
        self._longest = longest
        self._messages: list[MQTTMessage] = []
        self._size = 0
        self._unacknowledged = 0
        self._refusal = ""
        self._subscribed = False
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True
        )
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_message = self._on_message

    @contextmanager
    def connected(
        self,
        host: str,
        port: int,
        user: str | None,
        password: str | None,
        encrypted: bool,
        ca: str | None,
        within: float,
    ) -> Iterator[None]:
        """The session of the broker for as long as the body lasts, subscribed to all topics.

        Raises:
            ReceiverError: the broker cannot be reached, or refuses; or a variable or certificate is not there.
        """
        if user is not None or password is not None:
            self._client.username_pw_set(user or "", None if password is None else secret(self._address, password))
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = _IN_FLIGHT
        properties.SessionExpiryInterval = self._session_seconds
        self._client.connect_timeout = within
        try:
            if encrypted:
                self._client.tls_set_context(ssl.create_default_context(cafile=ca))
            self._client.connect(host, port, clean_start=False, properties=properties)
        except OSError as error:
            raise ReceiverError(
                f"{self._address} cannot be reached ({error}); start the broker, or correct it."
            ) from error
        try:
            deadline = time.monotonic() + within
            while not self._subscribed:
                self._read(IDLE)
                if time.monotonic() > deadline:
                    raise ReceiverError(f"{self._address} does not answer; start the broker, or correct it.")
            yield
        finally:
            # The session stays, with what is not acknowledged.
            self._client.disconnect()
            self._client.loop(0)

    def portion(self) -> Received:
        """The messages that have come, and what acknowledges them; none where nothing comes for a while.

        Raises:
            ReceiverError: the connection has ended.
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
        # What was published with QoS 0 takes none of the places.
        self._unacknowledged += sum(message.qos > 0 for message in messages)
        rows = [self._row(message) for message in messages if len(message.payload) <= self._longest]
        return Received(
            rows,
            refused=len(messages) - len(rows),
            landed=partial(self._acknowledge, messages),
            waits=self._unacknowledged >= _IN_FLIGHT,
        )

    def _acknowledge(self, messages: Sequence[MQTTMessage]) -> None:
        for message in messages:
            self._unacknowledged -= message.qos > 0
            # Where the connection is gone, the message comes again.
            self._client.ack(message.mid, message.qos)

    def _read(self, within: float) -> None:
        code = self._client.loop(within)
        if self._refusal:
            raise ReceiverError(f"{self._address} refuses ({self._refusal}).")
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise ReceiverError(f"{self._address} has ended the connection ({code.name}).")

    def _row(self, message: MQTTMessage) -> bytes:
        if not self._envelope:
            return on_one_line(bytes(message.payload))
        told = {"topic": message.topic, **payload_fields(message.payload)}
        return json.dumps(told, ensure_ascii=False).encode()

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        self._messages.append(message)
        self._size += len(message.payload)

    def _on_connect(self, client: Client, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.value >= _FAILED:
            self._refusal = str(code)
            return
        # What a topic retains comes with a new subscription only, not each time that the connection was lost.
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self._topics])

    def _on_subscribe(self, client: Client, data: Any, message: int, codes: Sequence[Any], properties: Any) -> None:
        refused = [f"{topic}: {code}" for topic, code in zip(self._topics, codes, strict=True) if code.value >= _FAILED]
        self._refusal = ", ".join(refused)
        self._subscribed = not refused

    def _on_disconnect(self, client: Client, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.value >= _FAILED:
            self._refusal = str(code)

"""A session at a broker of MQTT: connected, and read in portions that are acknowledged once they are landed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from streaming.base import ReceiverError
from streaming.sources.receivers.connector import IDLE
from streaming.sources.receivers.messages import Message, MessageBroker, MessagePortions, payload_fields
from streaming.sources.receivers.web import on_one_line

_IN_FLIGHT = 65_535
"""The most messages that MQTT lets a broker hand out without an acknowledgement."""
_QOS = 1
"""At least once."""
_FAILED = 128
"""Reason codes from here on are refusals."""


class MqttSession(MessagePortions[MQTTMessage]):
    """The session of a receiver at its broker, which keeps it for so many seconds while the receiver is away."""

    def __init__(self, broker: MessageBroker, client_id: str, topics: Sequence[str], seconds: int) -> None:
        super().__init__(_IN_FLIGHT)
        self._broker = broker
        self._topics = topics
        self._seconds = seconds
        self._refusal = ""
        self._subscribed = self._is_kept = False
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True
        )
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = self._on_subscribe
        self._client.on_disconnect = self._on_disconnect
        self._client.on_message = self._on_message

    @contextmanager
    def connected(self, host: str, port: int) -> Iterator[bool]:
        """The broker's session for as long as the body lasts, subscribed to all topics; true if it was there before.

        Raises:
            ReceiverError: the broker cannot be reached, or refuses; or a variable or certificate is not there.
        """
        broker = self._broker
        if broker.user is not None or broker.password is not None:
            self._client.username_pw_set(broker.user or "", broker.secret())
        properties: Any = Properties(PacketTypes.CONNECT)
        properties.ReceiveMaximum = _IN_FLIGHT
        properties.SessionExpiryInterval = self._seconds
        self._client.connect_timeout = broker.seconds_to_connect
        try:
            encryption = broker.encryption()
            if encryption is not None:
                self._client.tls_set_context(encryption)
            self._client.connect(host, port, clean_start=False, properties=properties)
        except OSError as error:
            raise ReceiverError(
                f"{broker.address} cannot be reached ({error}); start the broker, or correct it."
            ) from error
        try:
            deadline = time.monotonic() + broker.seconds_to_connect
            while not self._subscribed:
                self._read(IDLE)
                if time.monotonic() > deadline:
                    raise ReceiverError(f"{broker.address} does not answer; start the broker, or correct it.")
            yield self._is_kept
        finally:
            # The session stays, with what is not acknowledged.
            self._client.disconnect()
            self._client.loop(0)

    def _acknowledge(self, messages: Sequence[Message[MQTTMessage]]) -> None:
        for message in messages:
            self._client.ack(message.handle.mid, message.handle.qos)

    def _read(self, within: float) -> None:
        code = self._client.loop(within)
        if self._refusal:
            raise ReceiverError(f"{self._broker.address} refuses ({self._refusal}).")
        if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise ReceiverError(f"{self._broker.address} has ended the connection ({code.name}).")

    def _row(self, message: MQTTMessage) -> bytes:
        if not self._broker.envelope:
            return on_one_line(bytes(message.payload))
        told = {"topic": message.topic, **payload_fields(message.payload)}
        return json.dumps(told, ensure_ascii=False).encode()

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        row = None if len(message.payload) > self._broker.longest_message else self._row(message)
        # What was published with QoS 0 takes none of the places.
        self._take(Message(message, row, is_in_flight=message.qos > 0))

    def _on_connect(self, client: Client, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.value >= _FAILED:
            self._refusal = str(code)
            return
        self._is_kept = flags.session_present
        # What a topic retains comes with a new subscription only, not each time that the connection was lost.
        options = SubscribeOptions(qos=_QOS, retainHandling=SubscribeOptions.RETAIN_SEND_IF_NEW_SUB)
        client.subscribe([(topic, options) for topic in self._topics])

    def _on_subscribe(self, client: Client, data: Any, message: int, codes: Sequence[Any], properties: Any) -> None:
        granted = zip(self._topics, codes, strict=True)
        # With QoS 0 it would keep nothing until it is landed.
        refused = [f"{topic}: {code}" for topic, code in granted if code.value >= _FAILED or code.value < _QOS]
        self._refusal = ", ".join(refused)
        self._subscribed = not refused

    def _on_disconnect(self, client: Client, data: Any, flags: Any, code: Any, properties: Any) -> None:
        if code.value >= _FAILED:
            self._refusal = str(code)

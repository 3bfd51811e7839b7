"""Messages of a broker of MQTT, which keeps each of them until it is landed."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from streaming.base import DeclarationError, check_number, check_tuple, check_type, interval, needs
from streaming.sources.receivers.connector import Received, Reception
from streaming.sources.receivers.messages import MessageBroker

_LONGEST_SESSION = 2**32 - 2
"""Seconds; what is more is for ever."""


@dataclass(frozen=True)
class Mqtt(MessageBroker):
    """Takes the messages of `topics` from a broker of MQTT 5, each with its acknowledgement once it is landed.

    `topics` are filters, in which `+` stands for one level and `#` for all that follow. `client_id` names the session
    that the broker keeps for the receiver while it is away, for `keeps_for`: at least once, for messages that are
    published with QoS 1 or 2. What is published with QoS 0 the broker keeps for nobody. Two that use one name push each
    other out. The first time only what is published from then on comes, and what topics retain. A broker that has no
    session any more is told of (`Received.lost`), as what it kept has gone with it.

    A row is the payload, in which line breaks become spaces. With `envelope` it is an object with `topic` and
    `payload`, a text; or with `payload_base64` where the payload is no UTF-8. A message that is longer than
    `longest_message` bytes is refused and counted.

    A broker hands out so many messages without an acknowledgement, 65,535 at most and some of them fewer, and then
    waits: let the receiver land them before, by its `every` and `rows_per_file`.

    `ssl`: the connection is encrypted, and the broker must show a certificate for `host`, signed by somebody whom this
    machine trusts, or by who is in the PEM file `ca`. `password` names a variable of the environment.

    Raises:
        DeclarationError: a topic, the port, an interval or a length cannot be.
        MissingExtra: the client of MQTT is not installed.
    """

    host: str
    topics: tuple[str, ...]
    client_id: str
    port: int = 1883
    keeps_for: str = "7 days"

    def __post_init__(self) -> None:
        needs("paho", f"messages of MQTT from {self.host}")
        self.check_access(self.host)
        check_tuple("topics of Mqtt", self.topics, str, "a tuple of topics, also for one of them")
        if not self.topics or not all(map(_is_filter, self.topics)):
            raise DeclarationError(
                f"topics={self.topics!r} of Mqtt are no filters of topics",
                "write such as ('sensors/+/temperature', 'alarms/#').",
            )
        check_type("client_id of Mqtt", self.client_id, str, "a name that nobody else uses at this broker")
        if not self.client_id:
            raise DeclarationError(
                "client_id='' of Mqtt names no session", "write a name that nobody else uses at this broker."
            )
        check_number(f"port={self.port!r} of Mqtt", self.port, "port")
        interval(self.keeps_for)

    @property
    def address(self) -> str:
        """Scheme, host and port, and the topics."""
        return f"{'mqtts' if self.ssl else 'mqtt'}://{self.host}:{self.port}, topics {', '.join(self.topics)}"

    @property
    def cursor_of(self) -> str:
        """Sessions at any broker: the cursor only tells that there was one."""
        return "sessions of MQTT"

    @property
    def session_seconds(self) -> int:
        """The seconds for which the broker keeps the session."""
        return min(int(interval(self.keeps_for).total_seconds()), _LONGEST_SESSION)

    def receive(self, reception: Reception) -> Generator[Received, None, None]:
        """The messages as they come; the broker is told of those that are landed.

        Raises:
            ReceiverError: the broker is away, or refuses.
        """
        # Only who receives by MQTT loads the client.
        from streaming.sources.receivers.mqtt_session import MqttSession

        session = MqttSession(self, self.client_id, self.topics, self.session_seconds)
        with session.connected(self.host, self.port) as is_kept:
            known, own = reception.cursor, {"client_id": self.client_id}
            lost = "" if known is None or is_kept else self._lost(known["client_id"])
            # Landed at once, so that whoever connects next knows of the session.
            yield Received(cursor=None if known == own else own, waits=known != own, lost=lost)
            while True:
                yield session.portion()

    def _lost(self, client_id: str) -> str:
        """The loss of a session that there was, of `client_id`, in words."""
        before = "any more" if client_id == self.client_id else f"(the one before was {client_id!r})"
        return (
            f"{self.address} has no session {self.client_id!r} {before}, so what was published while the receiver was "
            "away did not come, nor what had come and was not landed. Let the publishers send it again. Brokers keep a "
            f"session for {self.keeps_for}, as is declared here, for less where they are configured so, and without "
            "persistence until they restart."
        )


def _is_filter(topic: str) -> bool:
    """True for a filter of topics (MQTT 5, section 4.7)."""
    levels = topic.split("/")
    whole = all(level in ("+", "#") or not set("+#") & set(level) for level in levels)
    return bool(topic) and "\0" not in topic and whole and "#" not in levels[:-1]

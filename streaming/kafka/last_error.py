"""The word of a Kafka client on its connections, which tells more than that nobody answered in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_ADVICE = {
    "_SSL": "Name the PEM file of who signed the brokers' certificate in ssl.ca.location",
    "_AUTHENTICATION": "Correct sasl.username, sasl.password and sasl.mechanism",
}


class LastError:
    """The last word of a client that says why; it is the client's `error_cb`, and is told when the client is polled."""

    def __init__(self) -> None:
        self._text = ""
        self.advice = ""
        """The action to take, as the beginning of a sentence; empty where the word does not say."""

    def __call__(self, error: KafkaError) -> None:
        name = error.name()
        # A broker closes the connection it refused, and then none is left: both say less than why it refused.
        if name in _ADVICE or (name != "_ALL_BROKERS_DOWN" and not self.advice):
            self._text, self.advice = error.str(), _ADVICE.get(name, "")

    def __str__(self) -> str:
        return f", the last word was: {self._text}" if self._text else ""

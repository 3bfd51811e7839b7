"""Which topics are read: one, several, or those that a pattern finds."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streaming.base import DeclarationError, SourceError, check_tuple
from streaming.kafka import can_name_a_topic
from streaming.sources.kafka.topics import Topic

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient


def check_subscription(topic: str | None, topics: tuple[str, ...], pattern: str | None) -> None:
    """Refuse none or more than one of the three, and what cannot name or find a topic.

    Raises:
        DeclarationError: with what to write.
    """
    check_tuple("topics of Kafka", topics, str, "a tuple of names, such as ('orders', 'payments')")
    ways = {"topic": topic, "topics": topics, "pattern": pattern}
    given = [name for name, value in ways.items() if value]
    if len(given) != 1:
        raise DeclarationError(
            f"Kafka has {' and '.join(given) or 'no topic'}; give it one of topic='orders', "
            "topics=('orders', 'payments') and pattern='orders-.*'."
        )
    for name in topics if topic is None else (topic,):
        if not can_name_a_topic(name):
            raise DeclarationError(
                f"{name!r} cannot name a topic; use letters, digits, '.', '_' and '-', or give a pattern=."
            )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise DeclarationError(
                f"pattern={pattern!r} is not a regular expression ({error}); write one, such as 'orders-.*'."
            ) from error


def subscribed(client: KafkaClient, servers: str, named: Sequence[str], pattern: str | None) -> dict[str, Topic]:
    """The topics as they are now, by name; of those that a pattern finds there may be none.

    Raises:
        SourceError: no broker answers, or a topic that is declared by its name is not there.
    """
    if pattern is not None:
        return client.topics(client.names(pattern))
    topics = client.topics(named)
    missing = [name for name in named if name not in topics]
    if missing:
        there = ", ".join(client.names()) or "none"
        raise SourceError(
            f"there is no topic {', '.join(map(repr, missing))} at {servers!r}; topics there are: {there}. "
            "Create it, correct the declaration, or let the user of the stream read it. Nothing was read."
        )
    return topics

"""The flights of the landing folder once more, as an airport's system would send them to a topic of Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import date
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from platform_assets.demo.feeds.flights import Departure, departures_sent
from streaming.base import FeedError

_WITHIN = 30.0


def send_flights(servers: str, topic: str, first_day: date, days: int, dirty: float = 0.005) -> int:
    """Send the flights scheduled on ``days`` UTC days from ``first_day`` on to ``topic``; returns how many were new.

    Each airport has a partition of its own, in which its flights come in the order in which they leave; the timestamp
    of a record is that moment. The lines are those of `feed_flights`. Lines that the topic holds already are not sent
    again, also when ranges overlap. The topic is made where there is none.

    Raises:
        FeedError: a range without flights, or the brokers do not take them all within half a minute.
    """
    departures = departures_sent(first_day, days, dirty)
    origins = sorted({departure.origin for departure in departures})
    try:
        _create(servers, topic, len(origins))
        return sum(
            _send(servers, topic, partition, [each for each in departures if each.origin == origin])
            for partition, origin in enumerate(origins)
        )
    except KafkaException as error:
        raise FeedError(f"the brokers at {servers} do not take the flights: {error.args[0]}") from error


def _create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    if topic not in admin.list_topics(timeout=_WITHIN).topics:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_WITHIN)


def _send(servers: str, topic: str, partition: int, departures: Sequence[Departure]) -> int:
    held = _held(servers, topic, partition)
    new = []
    for departure in departures:
        if held[departure.line]:
            held[departure.line] -= 1
        else:
            new.append(departure)
    refused: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for departure in new:
        producer.produce(
            topic,
            departure.line,
            key=departure.origin,
            partition=partition,
            timestamp=round(departure.sent_at.timestamp() * 1000),
            on_delivery=lambda error, _: refused.append(error) if error is not None else None,
        )
        producer.poll(0)
    if producer.flush(_WITHIN) or refused:
        why = refused[0] if refused else f"{servers} took longer than {_WITHIN:.0f} s"
        raise FeedError(f"not all flights got into topic {topic!r}: {why}", "feed again, which sends what is missing.")
    return len(new)


# A partition that was made just now has no leader for a moment.
@retry(
    retry=retry_if_exception_type(KafkaException), stop=stop_after_delay(_WITHIN), wait=wait_fixed(0.1), reraise=True
)
def _held(servers: str, topic: str, partition: int) -> Counter[str]:
    """The number of times that the partition has each line."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "feed", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_WITHIN)
        consumer.assign([TopicPartition(topic, partition, 0)])
        lines: Counter[str] = Counter()
        while lines.total() < end:
            records = consumer.consume(end - lines.total(), timeout=_WITHIN)
            if not records:
                raise FeedError(f"topic {topic!r} cannot be read to its end", "feed again.")
            lines.update(bytes(record.value() or b"").decode() for record in records)
        return lines
    finally:
        consumer.close()

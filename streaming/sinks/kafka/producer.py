"""The producer of one delivery: it sends records, within a transaction if it has an id for them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from streaming.base import SinkError, SourceError
from streaming.kafka import LastError, for_producer
from streaming.sinks.kafka.errors import cause_of, is_of_a_row, is_of_neighbours, translated
from streaming.sinks.kafka.records import Record

_ANSWERS_WITHIN, _ENDS_WITHIN = 30.0, 5.0
_POLL = 0.1


class RecordProducer:
    """Connects when it is made; with a transactional id, every earlier producer of that id is shut out from then on.

    Every method raises SinkError where brokers do not answer, and FencedError once a later producer has the id.
    """

    def __init__(self, servers: str, options: Mapping[str, str], transactional_id: str | None, address: str) -> None:
        self._address = address
        self._heard = LastError()
        self._failed: dict[int, KafkaError] = {}
        self.transactional = transactional_id is not None
        try:
            config = for_producer(servers, options)
        except SourceError as error:
            raise SinkError(str(error)) from error
        own = {"transactional.id": transactional_id} if transactional_id else {}
        self._config = {
            **config,
            **own,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "error_cb": self._heard,
        }
        self._producer = self._started()

    def partitions(self, topic: str) -> int:
        """The number of partitions that the topic has now; 0 where there is none of that name."""
        with self._translated(), _telling(self._producer):
            metadata = self._producer.list_topics(topic, timeout=_ANSWERS_WITHIN).topics[topic]
            missing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)
            if metadata.error is not None and metadata.error.code() not in missing:
                raise KafkaException(metadata.error)
        return len(metadata.partitions)

    def begin(self) -> None:
        """Begin a transaction, where there are transactions."""
        if self.transactional:
            with self._translated():
                self._producer.begin_transaction()

    def send(self, records: Iterable[Record], alone: Collection[int]) -> tuple[dict[int, str], dict[int, str]]:
        """Send the records, those at the positions `alone` each by itself, and wait until the brokers have them.

        Gives what was refused, by position: without being sent, and by the brokers. Where these refuse a record they
        refuse what came with it as well, and its transaction cannot be committed any more: nothing else is sent then.
        """
        # Reports of what an attempt before has left in the queue may still come.
        self._failed = {}
        unsent: dict[int, str] = {}
        with self._translated():
            for record in records:
                by_itself = record.position in alone
                if by_itself:
                    self._flush()
                self._produce(record, unsent)
                if by_itself:
                    self._flush()
                if self._failed and self.transactional:
                    break
            self._flush()
        refused = {at: error.str() for at, error in self._failed.items() if is_of_a_row(error)}
        others = [error for error in self._failed.values() if not is_of_a_row(error) and not is_of_neighbours(error)]
        if self._failed and (others or not refused):
            raise translated(next(iter([*others, *self._failed.values()])), self._address, self._heard)
        return unsent, refused

    def commit(self) -> None:
        """Commit the transaction, where there are transactions."""
        if self.transactional:
            deadline = time.monotonic() + _ANSWERS_WITHIN
            with self._translated():
                while True:
                    try:
                        self._producer.commit_transaction(_ANSWERS_WITHIN)
                        return
                    except KafkaException as error:
                        if not cause_of(error).retriable() or time.monotonic() > deadline:
                            raise

    def abort(self) -> None:
        """Give the transaction up, where there are transactions."""
        if self.transactional:
            with self._translated():
                self._producer.abort_transaction(_ENDS_WITHIN)

    def start_over(self) -> None:
        """Give the transaction up, where there are transactions, as brokers have refused a record of it."""
        if self.transactional:
            self.abort()
            # The client would go on with the sequence numbers of what was refused, and be refused for that.
            before, self._producer = self._producer, self._started()
            before.close()

    def close(self) -> None:
        """Let go of the connections; what was not sent is not."""
        self._producer.purge()
        self._producer.close()

    def _started(self) -> Producer:
        with self._translated():
            producer = Producer(self._config)
            if self.transactional:
                with _telling(producer):
                    producer.init_transactions(_ANSWERS_WITHIN)
        return producer

    def _produce(self, record: Record, unsent: dict[int, str]) -> None:
        deadline = time.monotonic() + _ANSWERS_WITHIN
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    record.value,
                    record.key,
                    record.partition,
                    on_delivery=partial(_note, self._failed, record.position),
                    timestamp=record.at,
                    headers=record.headers or None,
                )
            except BufferError:
                # As many records wait as the client keeps in memory.
                self._producer.poll(_POLL)
                if time.monotonic() > deadline:
                    raise translated(KafkaError(KafkaError._TIMED_OUT), self._address, self._heard) from None
                continue
            except KafkaException as error:
                if not is_of_a_row(cause_of(error)):
                    # A broker's refusal of an earlier record says more than that nothing can be sent any more.
                    self._producer.poll(0)
                    if self._failed:
                        return
                    raise
                unsent[record.position] = cause_of(error).str()
            return

    def _flush(self) -> None:
        deadline = time.monotonic() + _ANSWERS_WITHIN
        while self._producer.flush(_POLL) and not (self._failed and self.transactional):
            if time.monotonic() > deadline:
                raise translated(KafkaError(KafkaError._TIMED_OUT), self._address, self._heard)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise translated(cause_of(error), self._address, self._heard) from error


@contextmanager
def _telling(producer: Producer) -> Iterator[None]:
    """A context that ends with a poll of the producer: only then does it tell what it has heard of its connections."""
    try:
        yield
    finally:
        producer.poll(0)


def _note(failed: dict[int, KafkaError], position: int, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        failed[position] = error

"""One batch into topics: a transaction that its progress, records of a compacted topic, is part of."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from streaming.base import FencedError, SinkError, SourceError
from streaming.formats import Avro
from streaming.kafka import LastError, for_librdkafka, for_producer
from streaming.sinks.kafka.audited import AuditedTopics
from streaming.sinks.kafka.client import TopicReader, cause_of, is_of_a_row, is_of_neighbours, translated
from streaming.sinks.kafka.records import NOW, Encode, Layout, Record, as_json, records_of
from streaming.sinks.sink import (
    Comparison,
    Delivered,
    NumberedBatch,
    PutAside,
    RefusedRow,
    Sink,
    check_follows,
    check_own,
)

_ENDS_WITHIN = 5.0
_POLL = 0.1
_ANSWERS_WITHIN = 30.0
_PARTITION = 0
_CLEANUP = "cleanup.policy"
_CONFIG = {
    _CLEANUP: "compact",
    # The segment that is written to is never compacted, and all of it is read at a start.
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
}


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


class ProgressTopic:
    """The progress of one delivery, by generation.

    Every method raises SinkError where the brokers do not answer, or refuse.
    """

    def __init__(self, servers: str, options: Mapping[str, str], name: str, delivered: Delivered, address: str) -> None:
        self.name = name
        self._servers = servers
        self._options = options
        self._delivered = delivered
        self._address = address
        self._admin: AdminClient

    def read(self) -> dict[int, int]:
        """The newest batch of each generation; the topic is created if it is not there.

        Only the producer of the delivery may ask, once it can send: nobody else's transaction is open then.

        Raises:
            ProgressError: the progress there is of another delivery.
            SinkError: the topic forgets, so that it cannot keep progress.
        """
        try:
            # One that was there before may know no broker but those that are gone.
            self._admin = AdminClient(self._config)
            if self._is_there():
                self._check_kept()
                return self._read()
            self._create()
            return {}
        except KafkaException as error:
            raise translated(cause_of(error), f"topic {self.name!r} of {self._address}") from error

    def record(self, batch: NumberedBatch) -> Record:
        """The record that says that the batch is there; at the position behind its rows."""
        key = {"delivery": batch.delivery, "generation": batch.generation}
        value = {**key, "batch": batch.number, "identity": self._delivered.identity}
        rows = batch.rows.num_rows
        return Record(rows, self.name, _PARTITION, _dumped(key), _dumped(value), [], NOW)

    @cached_property
    def _config(self) -> dict[str, Any]:
        try:
            return for_librdkafka(self._servers, self._options)
        except SourceError as error:
            raise SinkError(str(error)) from error

    def _create(self) -> None:
        topic = NewTopic(self.name, num_partitions=1, replication_factor=-1, config=_CONFIG)
        (future,) = self._admin.create_topics([topic], operation_timeout=_ANSWERS_WITHIN).values()
        future.result(_ANSWERS_WITHIN)

    def _is_there(self) -> bool:
        # Asking for its metadata would have some brokers create it, and not as it has to be.
        (future,) = self._admin.describe_topics(TopicCollection([self.name])).values()
        try:
            future.result(_ANSWERS_WITHIN)
        except KafkaException as error:
            if cause_of(error).code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return False
        return True

    def _check_kept(self) -> None:
        (future,) = self._admin.describe_configs([ConfigResource(ResourceType.TOPIC, self.name)]).values()
        try:
            policy = future.result(_ANSWERS_WITHIN)[_CLEANUP].value
        except KafkaException as error:
            # Who may not look has been given the topic by somebody who may.
            if cause_of(error).code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return
            raise
        if policy != "compact":
            raise SinkError(
                f"topic {self.name!r} of {self._address} is to keep progress, and has {_CLEANUP}={policy}, so that "
                "Kafka removes what it keeps; set it to compact, and the batch is sent again."
            )

    def _read(self) -> dict[int, int]:
        place = TopicPartition(self.name, _PARTITION)
        first, end = (self._offset(place, spec) for spec in (OffsetSpec.earliest(), OffsetSpec.latest()))
        # The group is never joined; a client of a reader has to name one.
        own = {"group.id": "tidemark", "enable.auto.commit": False, "auto.offset.reset": "error"}
        read = {"isolation.level": "read_committed", "enable.partition.eof": True, "fetch.wait.max.ms": 10}
        consumer = Consumer(self._config | own | read)
        newest: dict[int, int] = {}
        deadline = time.monotonic() + _ANSWERS_WITHIN
        try:
            consumer.assign([TopicPartition(self.name, _PARTITION, first)])
            while first < end:
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
                message = consumer.poll(1.0)
                if message is None:
                    continue
                error, offset = message.error(), message.offset()
                assert offset is not None
                if error is None:
                    self._take(message.value(), newest)
                    offset += 1
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                first = offset
        finally:
            consumer.close()
        return newest

    def _take(self, value: str | bytes | None, newest: dict[int, int]) -> None:
        progress = json.loads(value or b"{}")
        # Somebody may have declared one topic for several deliveries.
        if progress.get("delivery") == self._delivered.name:
            check_own(self._delivered, progress["identity"], self._address, f"topic {self.name!r}")
            newest[progress["generation"]] = progress["batch"]

    def _offset(self, place: TopicPartition, spec: OffsetSpec) -> int:
        # Rows of open transactions count: what is behind them may be ours.
        isolation = IsolationLevel.READ_UNCOMMITTED
        (future,) = self._admin.list_offsets({place: spec}, isolation_level=isolation).values()
        return int(future.result(_ANSWERS_WITHIN).offset)


def _dumped(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()


@dataclass
class _Connected:
    """A producer; `newest`: the batch that each generation is at, which only this producer can change."""

    producer: RecordProducer
    newest: dict[int, int]
    partitions: dict[str, int]
    """The number of partitions of each topic that was asked for so far."""


class KafkaSink(Sink):
    """Connects when it is used; after an error anew, which ends what a transaction before it has left open.

    Without a topic for the `progress` there are no transactions.
    """

    def __init__(
        self,
        servers: str,
        options: Mapping[str, str],
        layout: Layout,
        format_: Avro | None,
        progress: str | None,
        delivered: Delivered,
        address: str,
    ) -> None:
        self._servers = servers
        self._options = options
        self._layout = layout
        self._delivered = delivered
        self._address = address
        self._id = f"tidemark-{'-'.join(filter(None, (delivered.name.replace('/', '-'), delivered.identity)))}"
        self._connection: _Connected | None = None
        self._progress: ProgressTopic | None = None
        if progress is not None:
            self._progress = ProgressTopic(servers, options, progress, delivered, address)
        self._encode: Encode = as_json
        if format_ is not None:
            # Only who writes Avro loads the libraries for it.
            from streaming.sinks.kafka.avro import AvroValues

            self._encode = AvroValues(format_)

    def delivered_through(self, generation: int) -> int | None:
        return self._connected().newest.get(generation, -1) if self._progress is not None else None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        connected = self._connected()
        if self._progress is not None:
            newest = connected.newest.get(batch.generation, -1)
            if newest >= batch.number:
                return
            check_follows(batch, newest, max(connected.newest, default=-1), self._address)
        try:
            self._send(connected, batch, put_aside)
        except BaseException:
            # A transaction that was broken off may be in any state.
            self._give_up()
            raise
        connected.newest[batch.generation] = batch.number

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison | None:
        """Reads the topics as any consumer does: a producer of its own would shut out the process that delivers."""
        reader = TopicReader(self._servers, self._options, self._address)
        return AuditedTopics(self._layout, self._delivered, self._encode, reader).compare(generation, expected)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.producer.close()
            self._connection = None

    def _connected(self) -> _Connected:
        if self._connection is None:
            transactional_id = None if self._progress is None else self._id
            producer = RecordProducer(self._servers, self._options, transactional_id, self._address)
            try:
                newest = {} if self._progress is None else self._progress.read()
            except BaseException:
                producer.close()
                raise
            self._connection = _Connected(producer, newest, {})
        return self._connection

    def _send(self, connected: _Connected, batch: NumberedBatch, put_aside: PutAside) -> None:
        producer = connected.producer
        refused: dict[int, str] = {}
        alone: set[int] = set()
        while True:
            producer.begin()
            unsent, failed = producer.send(self._records(connected, batch, refused), alone)
            refused |= unsent
            if not failed:
                break
            producer.start_over()
            # Of records that came together all are refused for one of them, so each is sent by itself once more.
            refused |= {position: error for position, error in failed.items() if position in alone}
            alone |= set(failed)
        put_aside([RefusedRow(position, refused[position]) for position in sorted(refused)])
        if self._progress is not None:
            producer.send([self._progress.record(batch)], ())
        producer.commit()

    def _records(self, connected: _Connected, batch: NumberedBatch, refused: dict[int, str]) -> Iterator[Record]:
        """The records but for those `refused`, which rows are added to that cannot be sent.

        They are made one by one, as many at once would keep Python's garbage collector busy.
        """
        unplaced: dict[tuple[str, int], str] = {}
        for row in records_of(self._layout, self._delivered.key, batch, self._encode):
            if isinstance(row, RefusedRow):
                refused[row.position] = row.error
            elif row.position not in refused:
                place = row.topic, row.partition
                if place not in unplaced:
                    unplaced[place] = self._unplaced(connected, *place)
                if unplaced[place]:
                    refused[row.position] = unplaced[place]
                else:
                    yield row

    def _unplaced(self, connected: _Connected, topic: str, partition: int) -> str:
        """Why there is no such place, empty if there is; what is not known is asked for, as it is now.

        Raises:
            SinkError: the declared topic is not there.
        """
        there = connected.partitions.get(topic, 0)
        if max(partition, 0) >= there:
            there = connected.partitions[topic] = connected.producer.partitions(topic)
        if not there and topic == self._layout.topic:
            raise SinkError(
                f"there is no topic {topic!r} at {self._servers!r}; create it, or correct the declaration. The batch "
                "is sent again by itself."
            )
        if not there:
            return f"there is no topic {topic!r}"
        if partition >= there:
            has = f"0 to {there - 1}" if there > 1 else "0 alone"
            return f"topic {topic!r} has no partition {partition}, but {has}"
        return ""

    def _give_up(self) -> None:
        connected = self._connection
        if connected is not None:
            self._connection = None
            # Where it cannot be ended, whoever connects next ends it; until then nobody reads it.
            with suppress(SinkError, FencedError):
                connected.producer.abort()
                connected.producer.close()

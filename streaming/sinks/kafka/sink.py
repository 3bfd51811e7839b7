"""One batch into topics: a transaction that its progress is part of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa

from streaming.base import FencedError, SinkError
from streaming.formats import Avro
from streaming.sinks.comparison import Comparison
from streaming.sinks.kafka.audited import AuditedTopics
from streaming.sinks.kafka.producer import RecordProducer
from streaming.sinks.kafka.progress import ProgressTopic
from streaming.sinks.kafka.reading import TopicReader
from streaming.sinks.kafka.records import Encode, Layout, Record, as_json, records_of
from streaming.sinks.progress import check_follows
from streaming.sinks.sink import Delivered, NumberedBatch, PutAside, RefusedRow, Sink


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

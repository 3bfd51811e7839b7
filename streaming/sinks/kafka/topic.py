"""Rows into a topic of Kafka, exactly once for readers of committed rows: the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from streaming.base import Dataset, DeclarationError, FrozenMapping, check_mapping, check_type, needs, topic_at
from streaming.formats import Avro
from streaming.kafka import WRITER, can_name_a_topic, check_servers, client_options
from streaming.lake import Lake
from streaming.sinks.kafka.records import Layout
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target


@dataclass(frozen=True)
class KafkaTopic(Target):
    """Rows as records of `topic`, or of the topic that the column `topic_column` names; where it is null, of `topic`.

    A record's value is the row as a JSON object, or with `format` in Avro: plain, or with a `registry`, where the
    schema is registered under `<topic>-value`. Its time is the event time of the row, or the start of its window; a
    topic with a retention of time goes by that. Its key is made of the columns `key`: the text of one, a JSON object of
    several. Rows of one key stay in order. They go to the partition that the key's hash says, which is that of Java's
    clients, or that which the column `partition` numbers. `headers` maps a header to the column that has its text.
    Columns for headers, partition and topic are not in the value.

    Changes (`what="current"`) have the key of the result unless told otherwise, and headers `_revision`, `_change` and
    `_reason`; an upsert has the result as its value, a delete none: a compacted topic holds what is current.

    A batch is a transaction, in which the progress goes to the compacted topic `progress`, of one partition; it is
    created if it is not there, and called `tidemark-progress-<stream>-<delivery>` if left out. Readers have to read
    committed rows only (`isolation.level=read_committed`). A transaction that was left open by a process that died ends
    when the next one starts, at the latest after `transaction.timeout.ms` of the `options`: a minute, and 15 at most
    unless the brokers allow more. With `transactional=False` a batch may come twice, in whole or in part; each record
    then has a header `_id` that is the same each time.

    A row becomes a dead letter where it is larger than the brokers or `message.max.bytes` (1 MB) allow, where the
    format or the brokers refuse it, where its time is 1970 or before, which Kafka's records cannot have, and where
    there is no such partition, or no such topic as it names. A declared
    `topic` that is not there, and brokers that do not answer, are waited for.

    `options` are those of librdkafka, as for `Kafka`: text such as `"${KAFKA_PASSWORD}"` is taken from the environment.

    Raises:
        DeclarationError: there is no topic, or a value cannot work.
    """

    servers: str
    topic: str | None = None
    key: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    partition: str | None = None
    topic_column: str | None = None
    format: Avro | None = None
    transactional: bool = True
    progress: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    batch: int = 10_000

    kind: ClassVar[str] = "kafka"
    guarantee: ClassVar[Guarantee] = "exactly once"
    keeps_keys: ClassVar[bool] = True
    keeps_history: ClassVar[bool] = True

    def __post_init__(self) -> None:
        needs("confluent_kafka", "KafkaTopic")
        check_servers("KafkaTopic", self.servers)
        check_type("key of KafkaTopic", self.key, tuple, "a tuple of columns, such as key=('id',)")
        if self.topic is None and self.topic_column is None:
            raise DeclarationError(
                "KafkaTopic has no topic; give it topic='orders', or topic_column='kind' where each row names its own."
            )
        for name in filter(None, (self.topic, self.progress)):
            if not can_name_a_topic(name):
                raise DeclarationError(f"{name!r} cannot name a topic; use letters, digits, '.', '_' and '-'.")
        if self.format is not None:
            check_type("format of KafkaTopic", self.format, Avro, "Avro(schema, registry=...), or nothing for JSON")
        check_mapping("headers of KafkaTopic", self.headers, str, "a dict from header to column")
        object.__setattr__(self, "headers", FrozenMapping(self.headers))
        object.__setattr__(self, "options", client_options(self.options, WRITER))
        if not self.transactional:
            # Of this value alone: what the class promises takes transactions.
            object.__setattr__(self, "guarantee", "at least once")

    @property
    def address(self) -> str:
        """Servers and topic."""
        return f"{self.servers}: {self.topic or f'the topic in {self.topic_column}'}"

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The topic; none where each row names its own."""
        return () if self.topic is None else (topic_at(self.servers, self.topic),)

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns for topic, partition and headers, and those that a record in Avro cannot do without."""
        needed = () if self.format is None else tuple(each.name for each in self.format.columns if each.required)
        return (*self._layout.columns, *(name for name in needed if name not in self._layout.columns))

    @property
    def _layout(self) -> Layout:
        return Layout(self.topic, self.topic_column, self.partition, self.headers, named=not self.transactional)

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """Connects when it is used first, and then is the only process that can deliver."""
        # Only who writes to topics loads the library, which takes a while.
        from streaming.sinks.kafka.sink import KafkaSink

        progress = self.progress or f"tidemark-progress-{delivered.name.replace('/', '-')}"
        return KafkaSink(
            self.servers,
            self.options,
            self._layout,
            self.format,
            progress if self.transactional else None,
            delivered,
            self.address,
        )

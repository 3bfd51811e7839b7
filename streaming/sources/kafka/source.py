"""Topics as a source: the declaration, and how a batch of them is read so that no row is lost or comes twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base import DeclarationError, SourceError
from streaming.kafka import ClientOptions, check_servers, client_options, for_spark
from streaming.lake import Lake
from streaming.sources.backlog import SourceBacklog
from streaming.sources.kafka.backlog import KafkaBacklog
from streaming.sources.kafka.batch import take_batch
from streaming.sources.kafka.comparison import compare_topics
from streaming.sources.kafka.direct import LAST_MILLI
from streaming.sources.kafka.memory import KafkaMemory
from streaming.sources.kafka.plan import (
    check_held,
    check_nothing_lost,
    check_same_topics,
    described,
    lost_ranges,
    planned_ranges,
)
from streaming.sources.kafka.start import Start, checked_start, first_offsets
from streaming.sources.kafka.subscription import check_subscription, subscribed
from streaming.sources.kafka.topics import Topic
from streaming.sources.source import Memory, Reading, Source, SourceComparison, Taken
from streaming.spark import KAFKA, JarGroup, add_jars, has_begun, newest_planned, query_id

if TYPE_CHECKING:
    from streaming.sources.kafka.client import KafkaClient


@dataclass(frozen=True)
class Kafka(Source):
    """Rows of a topic, of several, or of all whose whole names match a `pattern`; exactly one of the three is given.

    A row's payload is its value; null values, which Kafka calls tombstones, are rows too. `_origin` tells the rest:
    `topic`, `topic_id`, `partition`, `offset`, `timestamp`, `key`, and with `headers=True` the `headers`. A stream
    makes columns of them: `derived={"order_id": "cast(_origin.key as string)", "sent_at": "_origin.timestamp"}`. The
    timestamp of a row that was sent without one, or with one beyond the year 9999, is null.

    `servers`: host and port of one broker or more, separated by commas.

    `start`: where the first start begins: `"earliest"`; `"latest"`; an instant (each partition at its first row of
    then or later, and where there is none, behind its last); `{0: 17}`, offsets by partition, those left out from the
    earliest; or `CommittedOffsets("group")`. Afterwards the stream goes on where it was, whatever is declared. New
    partitions and topics are found while it runs, and read from their first row.

    `rows_per_batch`: a batch takes at most so many offsets of all partitions together.

    `when_lost`: what to do where the brokers removed rows before they were read. `"stop"` refuses, with the offsets;
    `"skip"` goes on without them, and counts them.

    `options` are those of librdkafka, such as `security.protocol`, `sasl.username` or `ssl.ca.location`; a text such as
    `"${KAFKA_PASSWORD}"` is taken from the environment when it is needed. Rows of transactions that were aborted are
    left out, unless `isolation.level` is `read_uncommitted`.

    Each partition is a source partition of the clock, named as in `orders-0`; `idle_after` of the clock leaves out the
    silent ones.

    Raises:
        DeclarationError: of topics there is none or more than one way given, or a value cannot work.
    """

    servers: str
    topic: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Start = "earliest"
    rows_per_batch: int = 500_000
    headers: bool = False
    when_lost: Literal["stop", "skip"] = "stop"
    options: Mapping[str, str] = field(default_factory=dict)

    origin: ClassVar[str] = (
        "struct<topic: string, topic_id: string, partition: int, offset: bigint, timestamp: timestamp, key: binary, "
        "headers: array<struct<key: string, value: binary>>>"
    )
    jars: ClassVar[tuple[JarGroup, ...]] = (KAFKA,)
    knows_its_rows: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_servers("Kafka", self.servers)
        check_subscription(self.topic, self.topics, self.pattern)
        object.__setattr__(self, "start", checked_start(self.start, self._named))
        object.__setattr__(self, "options", client_options(self.options))
        if not isinstance(self.rows_per_batch, int) or self.rows_per_batch < 1:
            raise DeclarationError(f"rows_per_batch={self.rows_per_batch!r} reads nothing; use 1 or more.")
        if self.when_lost not in ("stop", "skip"):
            raise DeclarationError(f"when_lost={self.when_lost!r} is unknown; write 'stop' or 'skip'.")

    @property
    def partitioned(self) -> bool:
        """Always: partitions move apart."""
        return True

    @property
    def larger_batches(self) -> str:
        """A higher cap."""
        return f"raise rows_per_batch={self.rows_per_batch} of the source"

    @property
    def _named(self) -> tuple[str, ...]:
        return (self.topic,) if self.topic is not None else self.topics

    @property
    def _client(self) -> KafkaClient:
        # Only who reads topics loads the library, which takes a while.
        from streaming.sources.kafka.client import client_of

        return client_of(self.servers, self.client_options)

    @property
    def client_options(self) -> ClientOptions:
        """The options, checked."""
        return client_options(self.options)

    def location(self, lake: Lake) -> str:
        """Servers and topics."""
        return f"kafka://{self.servers}/{self.pattern or ','.join(self._named)}"

    def topics_there(self) -> dict[str, Topic]:
        """The topics as they are now, by name; of those that a pattern finds there may be none.

        Raises:
            SourceError: no broker answers, or a topic that is declared by its name is not there.
        """
        return subscribed(self._client, self.servers, self._named, self.pattern)

    def check_there(self, spark: SparkSession, reading: Reading) -> None:
        """Refuse brokers that do not answer, and topics that are gone or were created again.

        Raises:
            SourceError: with what to do.
        """
        self._check_topics_of(reading, self.topics_there())

    def _check_topics_of(self, reading: Reading, topics: Mapping[str, Topic]) -> None:
        memory = KafkaMemory.from_json(reading.memory)
        # A checkpoint that is not the one of then begins anew, with the topics that there are.
        if memory.query is not None and memory.query == query_id(reading.checkpoint):
            check_same_topics(memory, topics, reading.checkpoint)

    def read(self, spark: SparkSession, reading: Reading) -> DataFrame:
        """A streaming frame of `_raw`, the value, and `_origin` but for the id of the topic.

        Raises:
            SourceError: as `check_there`, or the start position is none that there is.
            JarError: the jars of Kafka are neither there nor to be had.
        """
        topics = self.topics_there()
        self._check_topics_of(reading, topics)
        add_jars(spark, KAFKA)
        chosen = ("subscribePattern", self.pattern) if self.pattern else ("subscribe", ",".join(self._named))
        rows = (
            spark.readStream.format("kafka")
            .options(**for_spark(self.servers, self.options))  # type: ignore[arg-type]
            .option(*chosen)
            .option("startingOffsets", self._first_offsets(reading, topics))
            .option("maxOffsetsPerTrigger", self.rows_per_batch)
            .option("includeHeaders", self.headers)
            .option("failOnDataLoss", self.when_lost == "stop")
            .load()
        )
        headers = F.col("headers") if self.headers else F.lit(None).cast("array<struct<key: string, value: binary>>")
        timestamp = record_time(F.col("timestamp")).alias("timestamp")
        origin = F.struct("topic", "partition", "offset", timestamp, "key", headers.alias("headers"))
        return rows.select(F.col("value").alias("_raw"), origin.alias("_origin"))

    def _first_offsets(self, reading: Reading, topics: Mapping[str, Topic]) -> str:
        if has_begun(reading.checkpoint) or not topics:
            return "earliest"
        memory = KafkaMemory.from_json(reading.memory)
        offsets: dict[str, dict[str, int]] = {}
        for (topic, number), offset in first_offsets(self._client, topics, self.start, memory).items():
            offsets.setdefault(topic, {})[str(number)] = offset
        return json.dumps(offsets)

    def take(self, spark: SparkSession, reading: Reading, query_batch: int, rows: DataFrame) -> Taken:
        """The rows with the ids of their topics, without those that the log holds.

        Raises:
            SourceError: a topic is another one by now, or rows were removed and `when_lost` does not allow that.
        """
        topics = self.topics_there()
        self._check_topics_of(reading, topics)
        return take_batch(self, self._client, reading, query_batch, rows, topics)

    def check_repeated(self, reading: Reading, query_batch: int) -> None:
        """Refuse a batch of offsets that the log lacks, though it has one of that number.

        Raises:
            CheckpointError: the checkpoint is an older copy.
        """
        check_held(KafkaMemory.from_json(reading.memory), reading.checkpoint, query_batch)

    def partition_of(self, origin: Column) -> Column:
        """Topic and partition, such as `orders-0`."""
        return F.concat_ws("-", origin["topic"], origin["partition"])

    def time_of(self, origin: Column) -> Column:
        """The timestamp that producer or broker gave."""
        return origin["timestamp"]

    def describe_batch(self, checkpoint: str, query_batch: int) -> str:
        """The offsets by partition."""
        return described(planned_ranges(checkpoint, query_batch))

    def explain(self, spark: SparkSession, reading: Reading, text: str) -> SourceError | None:
        """What is wrong with brokers or topics now, where something is; Spark's own words name no way out."""
        try:
            topics = self.topics_there()
            self._check_topics_of(reading, topics)
            batch = newest_planned(reading.checkpoint)
            if batch is not None and self.when_lost == "stop":
                plan, memory = planned_ranges(reading.checkpoint, batch), KafkaMemory.from_json(reading.memory)
                held = {
                    (topic, number): memory.of(topics[topic].id, number) or ()
                    for topic, number in plan
                    if topic in topics
                }
                lost = lost_ranges(plan, self._client.earliest(plan), held)
                check_nothing_lost(lost, self.location(reading.lake))
        except SourceError as error:
            return error
        return None

    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts the offsets of each partition that are in no batch of the query."""
        return KafkaBacklog(self.topics_there, self._client, checkpoint, self.start).count

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """Topics that were created again, rows that wait, and rows that are in the log twice."""
        return compare_topics(self.topics_there(), self._client, origins)


def record_time(timestamp: Column) -> Column:
    """The time that a record has; null where it has none, which Kafka writes as -1 ms, or one after the year 9999."""
    return F.when(F.unix_millis(timestamp).between(0, LAST_MILLI), timestamp)

"""Topics as a source: the declaration, and how a batch of them is read so that no row is lost or comes twice."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from streaming.base import (
    CheckpointError,
    Dataset,
    DeclarationError,
    F,
    FrozenMapping,
    SourceError,
    check_tuple,
    needs,
    topic_at,
)
from streaming.kafka import (
    ClientOptions,
    can_name_a_topic,
    check_servers,
    client_options,
    for_spark,
    for_tasks,
    left_to_java,
)
from streaming.lake import Lake
from streaming.sources.kafka.memory import (
    KafkaMemory,
    Partition,
    Plan,
    Ranges,
    RangesOf,
    Topic,
    beyond,
    check_held,
    check_nothing_lost,
    check_same_topics,
    described,
    joined,
    lost_ranges,
    name_of,
    planned_ends,
    planned_ranges,
    size,
    within,
    without,
    words,
)
from streaming.sources.source import Memory, Reading, Source, SourceBacklog, SourceChange, SourceComparison, Taken
from streaming.spark import KAFKA, JarGroup, add_jars, has_begun, newest_planned, query_id, raised_in_workers

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from streaming.sources.kafka.client import KafkaClient


_LOOKED_AT = 100


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
    start: _Start = "earliest"
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
        needs("confluent_kafka", "Kafka")
        check_servers("Kafka", self.servers)
        _check_subscription(self.topic, self.topics, self.pattern)
        object.__setattr__(self, "start", _checked_start(self.start, self._named))
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

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The topics; of a pattern itself, as what it finds is known to the brokers alone."""
        return tuple(topic_at(self.servers, name) for name in ((self.pattern,) if self.pattern else self._named))

    def topics_there(self) -> dict[str, Topic]:
        """The topics as they are now, by name; of those that a pattern finds there may be none.

        Raises:
            SourceError: no broker answers, or a topic that is declared by its name is not there.
        """
        return _subscribed(self._client, self.servers, self._named, self.pattern)

    @property
    def left_to_spark(self) -> str:
        """An option that only Java's client can be given."""
        return left_to_java(self.client_options)

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
        for (topic, number), offset in _first_offsets(self._client, topics, self.start, memory).items():
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
        """The error of brokers or topics as they are now, where there is one; Spark's own words name no way out."""
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
        told = raised_in_workers(text, SourceError)
        return None if told is None else SourceError(told)

    def backlog(self, lake: Lake, checkpoint: str) -> Callable[[Memory], SourceBacklog]:
        """Counts the offsets of each partition that are in no batch of the query."""
        return _KafkaBacklog(self.topics_there, self._client, checkpoint, self.start).count

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        """Topics that were created again, rows that wait, and rows that are in the log twice."""
        return _compare_topics(self.topics_there(), self._client, origins)


def record_time(timestamp: Column) -> Column:
    """The time that a record has; null where it has none, which Kafka writes as -1 ms, or one after the year 9999."""
    from streaming.sources.kafka.client import LAST_MILLI

    return F.when(F.unix_millis(timestamp).between(0, LAST_MILLI), timestamp)


def take_batch(
    source: Kafka,
    client: KafkaClient,
    reading: Reading,
    query_batch: int,
    rows: DataFrame,
    topics: Mapping[str, Topic],
) -> Taken:
    """The rows of a planned batch, each with the id of its topic, without those that the log holds.

    `topics` are those that there are now.

    Raises:
        CheckpointError: the checkpoint vanished.
        SourceError: rows were removed before they could be read, and the declaration does not allow that.
    """
    from streaming.sources.kafka.client import FIRST_BEYOND_SPARK, Records, read_directly, shared_out

    query = query_id(reading.checkpoint)
    if query is None:
        raise CheckpointError(f"the checkpoint {reading.checkpoint!r} vanished while its query runs; stop and restart.")
    memory = KafkaMemory.from_json(reading.memory)
    plan = planned_ranges(reading.checkpoint, query_batch)
    ids = _ids(plan, topics)
    held = {partition: memory.of(ids[partition[0]], partition[1]) or () for partition in plan}
    duplicates = {partition: within(held[partition], bounds) for partition, bounds in plan.items()}
    lost = _lost(source, client, reading, plan, held)
    expected = {
        partition: tuple(
            piece for new in without(bounds, duplicates[partition]) for piece in without(new, lost.get(partition, ()))
        )
        for partition, bounds in plan.items()
    }

    def remember(written: Callable[[], DataFrame], counts: Mapping[str, int]) -> Memory:
        if _ids(plan, source.topics_there()) != ids:
            raise SourceError(
                f"a topic of {source.location(reading.lake)} was created again while a batch of it was read; the batch "
                "was not appended, and the next attempt says what to do."
            )
        gaps = _count_gaps(written, expected, counts, client)
        return _after(memory, query, source.start, plan, ids, gaps, lost).to_json()

    records = Records(
        for_tasks(source.servers, source.client_options),
        ids,
        source.headers,
        source.when_lost == "skip",
        source.location(reading.lake),
        {},
    )
    ranges = [(partition, piece) for partition, pieces in expected.items() for piece in pieces]
    parts = shared_out(records, ranges, rows.sparkSession.sparkContext.defaultParallelism)

    def frame() -> DataFrame:
        beyond = client.from_millis(plan, FIRST_BEYOND_SPARK)
        if any(offset is not None and offset < plan[partition][1] for partition, offset in beyond.items()):
            # Such a row may come before the batch, and hide one that is in it.
            return read_directly(rows.sparkSession, [part for group in parts for part in group])
        return _located(rows, ids, duplicates)

    return Taken(frame, remember, () if source.left_to_spark else parts)


def _ids(plan: Plan, there: Mapping[str, Topic]) -> dict[str, str]:
    missing = sorted({topic for topic, _ in plan} - there.keys())
    if missing:
        raise SourceError(
            f"the topic {', '.join(map(repr, missing))} is not there any more, and a batch that was planned reads it; "
            "what was not read is gone with it. Create it again, or leave it out of the declaration."
        )
    return {topic: there[topic].id for topic, _ in plan}


def _lost(
    source: Kafka, client: KafkaClient, reading: Reading, plan: Plan, held: Mapping[Partition, Ranges]
) -> dict[Partition, Ranges]:
    lost = lost_ranges(plan, client.earliest(plan), held)
    if source.when_lost == "stop":
        check_nothing_lost(lost, source.location(reading.lake))
    return lost


def _located(rows: DataFrame, ids: Mapping[str, str], duplicates: Mapping[Partition, Ranges]) -> DataFrame:
    origin = F.col("_origin")
    names = F.create_map(*(F.lit(text) for pair in sorted(ids.items()) for text in pair))
    fields = ("partition", "offset", "timestamp", "key", "headers")
    whole = F.struct(
        origin["topic"].alias("topic"),
        names[origin["topic"]].alias("topic_id"),
        *(origin[field].alias(field) for field in fields),
    )
    held = [_is_in(origin, partition, ranges) for partition, ranges in duplicates.items() if ranges]
    new = rows.where(~reduce(operator.or_, held)) if held else rows
    return new.withColumn("_origin", whole)


def _is_in(origin: Column, partition: Partition, ranges: Ranges) -> Column:
    offset = origin["offset"]
    inside = reduce(operator.or_, ((offset >= first) & (offset < end) for first, end in ranges))
    return (origin["topic"] == partition[0]) & (origin["partition"] == partition[1]) & inside


def _after(
    memory: KafkaMemory,
    query: str,
    start: object,
    plan: Plan,
    ids: Mapping[str, str],
    gaps: Mapping[Partition, int],
    lost: Mapping[Partition, Ranges],
) -> KafkaMemory:
    same = memory.query == query
    ranges: dict[str, RangesOf] = dict(memory.ranges)
    for (topic, number), bounds in plan.items():
        of_topic = dict(ranges.get(ids[topic], {}))
        of_topic[str(number)] = joined((*of_topic.get(str(number), ()), bounds))
        ranges[ids[topic]] = of_topic
    counted, skipped = dict(memory.gaps), dict(memory.lost)
    for partition, number in gaps.items():
        counted[name_of(partition)] = counted.get(name_of(partition), 0) + number
    for partition, gone in lost.items():
        skipped[name_of(partition)] = joined((*skipped.get(name_of(partition), ()), *gone))
    return KafkaMemory(
        query=query,
        # Where the query began follows from what was declared then.
        start=memory.start if same else str(start),
        topics={**(memory.topics if same else {}), **ids},
        ranges=ranges,
        gaps=counted,
        lost=skipped,
    )


def _count_gaps(
    written: Callable[[], DataFrame],
    expected: Mapping[Partition, Ranges],
    counts: Mapping[str, int],
    client: KafkaClient,
) -> dict[Partition, int]:
    """Offsets of each partition that should have brought a row and did not, in a batch that is `written`.

    A single offset is taken for the marker that ends a transaction, which nothing tells from it. A longer run is no gap
    where a row of a transaction that was aborted is found in it. Compaction leaves gaps, and so does whoever deletes
    rows. Looks at rows only where there are fewer of them than offsets.
    """
    fewer = {
        partition: ranges for partition, ranges in expected.items() if counts.get(name_of(partition), 0) < size(ranges)
    }
    offsets = _written_offsets(written, list(fewer))
    gaps = {}
    for partition, ranges in fewer.items():
        runs = [run for run in missing_runs(offsets[partition], ranges) if run[1] - run[0] > 1]
        hidden = [run for run in runs[:_LOOKED_AT] if _holds_a_row(client, partition, run)]
        gaps[partition] = size(tuple(runs)) - size(tuple(hidden))
    return {partition: number for partition, number in gaps.items() if number}


def missing_runs(offsets: NDArray[np.int64], expected: Ranges) -> list[tuple[int, int]]:
    """The runs of expected offsets that are not there, each as its first and the one behind its last."""
    runs = []
    for first, end in expected:
        inside = np.sort(offsets[(offsets >= first) & (offsets < end)])
        edges = np.concatenate([[first - 1], inside, [end]])
        places = np.flatnonzero(np.diff(edges) > 1)
        runs += [(int(edges[place]) + 1, int(edges[place + 1])) for place in places]
    return runs


def _written_offsets(
    written: Callable[[], DataFrame], partitions: list[Partition]
) -> dict[Partition, NDArray[np.int64]]:
    if not partitions:
        return {}
    names = [name_of(partition) for partition in partitions]
    origin = F.col("_origin")
    name = F.concat_ws("-", origin["topic"], origin["partition"]).alias("name")
    table = written().select(name, origin["offset"].alias("offset")).where(F.col("name").isin(names)).toArrow()
    row_names, offsets = table["name"].to_numpy(), table["offset"].to_numpy()
    return {partition: offsets[row_names == name_of(partition)] for partition in partitions}


def _holds_a_row(client: KafkaClient, partition: Partition, run: tuple[int, int]) -> bool:
    offset = client.first_offset_from(partition, run[0])
    return offset is not None and offset < run[1]


class _KafkaBacklog:
    """Counts offsets, which are rows but for markers of transactions and gaps."""

    def __init__(
        self, topics: Callable[[], dict[str, Topic]], client: KafkaClient, checkpoint: str, start: _Start
    ) -> None:
        self._topics = topics
        self._client = client
        self._checkpoint = checkpoint
        self._start = start

    def count(self, memory: Memory) -> SourceBacklog:
        """The rows that wait now, by partition.

        Raises:
            SourceError: the brokers do not answer.
        """
        topics, remembered = self._topics(), KafkaMemory.from_json(memory)
        places = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
        ends, earliest = self._client.ends(places), self._client.earliest(places)
        batch = newest_planned(self._checkpoint)
        if batch is not None:
            taken = planned_ends(self._checkpoint, batch)
        else:
            taken = _first_offsets(self._client, topics, self._start, remembered)
        # Rows that were removed meanwhile do not wait any more.
        waiting = {
            name_of(place): ends[place] - max(taken.get(place, 0), earliest[place])
            for place in places
            if ends[place] > max(taken.get(place, 0), earliest[place])
        }
        warning = " ".join(self._warnings(remembered))
        return SourceBacklog(sum(waiting.values()), "rows", warning=warning, partitions=waiting)

    def _warnings(self, memory: KafkaMemory) -> list[str]:
        warnings = []
        if memory.gaps:
            counted = ", ".join(f"{number:,} of {name}" for name, number in sorted(memory.gaps.items()))
            warnings.append(
                f"Offsets that brought no row and end no transaction: {counted}. Compaction leaves such gaps, and so "
                "does whoever deletes rows."
            )
        if memory.lost:
            skipped = ", ".join(f"{name} offsets {words(ranges)}" for name, ranges in sorted(memory.lost.items()))
            warnings.append(f"Removed before they were read, and left out as declared by when_lost: {skipped}.")
        if memory.start is not None and memory.start != str(self._start) and has_begun(self._checkpoint):
            warnings.append(
                f"start={self._start!r} is declared, and the stream goes on where it is: it began at {memory.start}, "
                f"and a start position is for the first start. To begin there anew, stop the stream and move the "
                f"checkpoint {self._checkpoint!r} away; what the log holds is not read twice."
            )
        return warnings


def _compare_topics(topics: Mapping[str, Topic], client: KafkaClient, origins: DataFrame) -> SourceComparison:
    """The differences between topics and what `origins` (column `_origin`) say of them, ordered by partition.

    A row that its retention has removed since is no change, and neither is a topic that is gone.
    """
    origin = F.col("_origin")
    # Rows that repair one have its place.
    own = origins.where(origin.isNotNull() & _is_no_repair(origins))
    partitions = (
        own.groupBy(*(origin[name].alias(name) for name in ("topic", "topic_id", "partition")))
        .agg(
            F.max(origin["offset"]).alias("last"),
            (F.count(F.lit(1)) - F.count_distinct(origin["offset"])).alias("repeated"),
        )
        .collect()
    )
    changes = [
        SourceChange(
            "changed",
            name_of((row["topic"], row["partition"])),
            f"{name_of((row['topic'], row['partition']))} has {row['repeated']:,} rows more in the log than offsets; "
            "each offset should be there once.",
        )
        for row in partitions
        if row["repeated"]
    ]
    ids: dict[str, set[str]] = {}
    read: dict[tuple[str, int], int] = {}
    for row in partitions:
        ids.setdefault(row["topic"], set()).add(row["topic_id"])
        if row["topic"] in topics and topics[row["topic"]].id == row["topic_id"]:
            read[(row["topic"], row["partition"])] = row["last"] + 1
    changes += [
        SourceChange(
            "changed",
            name,
            f"{name} was deleted and created again since: the log has rows of {', '.join(sorted(there))}, and the "
            f"topic is {topics[name].id} now. Run the pipeline, which says what to do.",
        )
        for name, there in sorted(ids.items())
        if name in topics and topics[name].id not in there
    ]
    places = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
    earliest, ends = client.earliest(places), client.ends(places)
    for place in places:
        waiting = ends[place] - max(read.get(place, 0), earliest[place])
        if waiting > 0:
            text = f"{name_of(place)} has {waiting:,} offsets that are not in the log; run the pipeline."
            changes.append(SourceChange("waiting", name_of(place), text))
    return SourceComparison(len(partitions), "partitions", tuple(changes))


def _is_no_repair(origins: DataFrame) -> Column:
    origin = origins.schema["_origin"].dataType
    return F.col("_origin.repairs").isNull() if "repairs" in origin.names else F.lit(True)  # type: ignore[attr-defined]


def _check_subscription(topic: str | None, topics: tuple[str, ...], pattern: str | None) -> None:
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


def _subscribed(client: KafkaClient, servers: str, named: Sequence[str], pattern: str | None) -> dict[str, Topic]:
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


@dataclass(frozen=True)
class CommittedOffsets:
    """Begin where the consumer group `group` has got to; `otherwise` where it has committed nothing.

    For a stream that takes over from a consumer. The group itself stays as it is.
    """

    group: str
    otherwise: Literal["earliest", "latest"] = "latest"

    def __post_init__(self) -> None:
        if self.otherwise not in ("earliest", "latest"):
            raise DeclarationError(f"otherwise={self.otherwise!r} is no position; write 'earliest' or 'latest'.")


_Start = Literal["earliest", "latest"] | datetime | Mapping[int | str, int] | CommittedOffsets


def _checked_start(start: object, topics: tuple[str, ...]) -> _Start:
    """A start position as a declaration holds it: partitions by their names.

    Raises:
        DeclarationError: it is none.
    """
    match start:
        case "earliest" | "latest" | CommittedOffsets():
            return start
        case datetime():
            if start.tzinfo is None:
                raise DeclarationError(
                    f"start={start!r} has no time zone; write which instant is meant, such as "
                    "datetime(2026, 1, 1, tzinfo=UTC)."
                )
            return start
        case Mapping():
            return FrozenMapping(dict(_offsets(start, topics)))
    raise DeclarationError(
        f"start={start!r} is no start position; write 'earliest', 'latest', an instant such as datetime(2026, 1, 1, "
        "tzinfo=UTC), offsets such as {0: 17, 1: 4}, or CommittedOffsets('group')."
    )


def _offsets(start: Mapping[object, object], topics: tuple[str, ...]) -> Iterable[tuple[str, int]]:
    for partition, offset in start.items():
        if isinstance(partition, int) and len(topics) == 1:
            name = name_of((topics[0], partition))
        elif isinstance(partition, str) and partition.rpartition("-")[2].isdigit():
            name = partition
        else:
            raise DeclarationError(
                f"start={dict(start)!r} names the partition {partition!r}; write its number where there is one topic, "
                "and topic and number such as 'orders-0' where there are several."
            )
        if not isinstance(offset, int) or offset < 0:
            raise DeclarationError(f"start={dict(start)!r} has the offset {offset!r}; write 0 or more.")
        yield name, offset


def _first_offsets(
    client: KafkaClient, topics: Mapping[str, Topic], start: _Start, memory: KafkaMemory
) -> dict[Partition, int]:
    """From where a query without a checkpoint reads each partition that is there.

    Of a log that has nothing yet, from where the declaration says. Otherwise from there too, but at the latest from
    where the log ends, and without what it holds: so nothing is left out, and nothing is read twice. What a log with
    rows has never seen of, a new partition or topic, is read from its first row.

    Raises:
        SourceError: the brokers do not answer, or a declared offset is not there.
    """
    partitions = [(topic.name, number) for topic in topics.values() for number in topic.partitions]
    declared = _declared(client, partitions, start)
    if not memory.ranges:
        return declared
    earliest = client.earliest(partitions)
    offsets = {}
    for partition in partitions:
        held = memory.of(topics[partition[0]].id, partition[1])
        if held is None:
            offsets[partition] = earliest[partition]
        else:
            offsets[partition] = beyond(min(declared[partition], held[-1][1]), held)
    return offsets


def _declared(client: KafkaClient, partitions: list[Partition], start: _Start) -> dict[Partition, int]:
    offsets: Mapping[Partition, int | None]
    match start:
        case "earliest":
            return client.earliest(partitions)
        case "latest":
            return client.ends(partitions)
        case datetime():
            offsets, otherwise = client.from_instant(partitions, start), "latest"
        case CommittedOffsets():
            offsets, otherwise = client.committed(start.group, partitions), start.otherwise
        case _:
            offsets, otherwise = _given(client, partitions, start), "earliest"
    missing = [partition for partition in partitions if offsets.get(partition) is None]
    others = client.ends(missing) if otherwise == "latest" else client.earliest(missing)
    return {**{partition: offset for partition, offset in offsets.items() if offset is not None}, **others}


def _given(client: KafkaClient, partitions: list[Partition], start: Mapping[int | str, int]) -> dict[Partition, int]:
    """The declared offsets, each of which must be one that the partition has or comes to next."""
    by_name = {name_of(partition): partition for partition in partitions}
    unknown = sorted(str(name) for name in start if name not in by_name)
    if unknown:
        raise SourceError(
            f"start={dict(start)!r} names {', '.join(unknown)}, and the partitions are {', '.join(sorted(by_name))}; "
            "correct the declaration. Nothing was read."
        )
    given = {by_name[str(name)]: offset for name, offset in start.items()}
    earliest, ends = client.earliest(given), client.ends(given)
    for partition, offset in given.items():
        if not earliest[partition] <= offset <= ends[partition]:
            raise SourceError(
                f"start={dict(start)!r} begins {name_of(partition)} at {offset}, and it holds the offsets from "
                f"{earliest[partition]} to before {ends[partition]}; correct the declaration. Nothing was read."
            )
    return given

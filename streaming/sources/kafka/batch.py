"""One batch of topics: what it takes, what of that the log holds already, and what is remembered of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from streaming.base import CheckpointError, F, SourceError
from streaming.kafka import ClientOptions, for_tasks
from streaming.lake import Lake
from streaming.sources.kafka.direct import FIRST_BEYOND_SPARK, Records, read_directly, shared_out
from streaming.sources.kafka.memory import (
    KafkaMemory,
    Partition,
    Plan,
    Ranges,
    RangesOf,
    Topic,
    check_nothing_lost,
    joined,
    lost_ranges,
    name_of,
    planned_ranges,
    size,
    within,
    without,
)
from streaming.sources.source import Memory, Reading, Taken
from streaming.spark import query_id

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from streaming.sources.kafka.client import KafkaClient


_LOOKED_AT = 100


class Declared(Protocol):
    """The declaration of the source."""

    @property
    def start(self) -> object:
        """The start position."""

    @property
    def when_lost(self) -> str:
        """`"skip"` where reading goes on without rows that were lost."""

    @property
    def servers(self) -> str:
        """The brokers."""

    @property
    def client_options(self) -> ClientOptions:
        """The options of the clients."""

    @property
    def headers(self) -> bool:
        """True where the headers of records are read."""

    @property
    def left_to_spark(self) -> str:
        """The reason for which tasks do not read the records; empty where they do."""

    def location(self, lake: Lake) -> str:
        """Servers and topics."""

    def topics_there(self) -> dict[str, Topic]:
        """The topics as they are now."""


def take_batch(
    source: Declared,
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
    source: Declared, client: KafkaClient, reading: Reading, plan: Plan, held: Mapping[Partition, Ranges]
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
    offsets = _offsets(written, list(fewer))
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


def _offsets(written: Callable[[], DataFrame], partitions: list[Partition]) -> dict[Partition, NDArray[np.int64]]:
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

"""Records that tasks read make the log that Spark makes of them; what they cannot read is told, or left to Spark."""

from __future__ import annotations

import itertools
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from platform_assets.texts.ingest import part_row
from streaming import Lake, log
from streaming.base import SourceError
from streaming.kafka import client_options, for_tasks
from streaming.log import tasks
from streaming.sources import Kafka
from streaming.sources.kafka import client
from streaming.sources.kafka.client import Records, shared_out
from streaming.sources.kafka.memory import Partition, Range
from tests.support.instants import at
from tests.support.kafka import Broker, Message
from tests.support.runs import run
from tests.support.seeds import LAW_SEED, draws
from tests.support.topics import event, piped, values

_NUMBERS = itertools.count()
VALUES = (None, b"", b"not JSON", b"\xff\x00", b"{}", b'{"id": 5, "at": "2026-01-01T00:00:00Z"}', b'{"id": "a"')
KEYS = (None, b"", b"key", b"\xff")
HEADERS: tuple[tuple[tuple[str, Any], ...], ...] = ((), (("h", b"x"),), (("h", b"1"), ("h", None), ("é", b"")))
IN_THE_DRIVER_OR_A_JOB = pytest.mark.parametrize("little", [tasks._LITTLE, -1], ids=["in the driver", "in a job"])


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"tasks-{next(_NUMBERS)}"


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task takes two offsets or more, and a block of the driver's has five records."""
    monkeypatch.setattr(client, "_FOR_ONE_TASK", 2)
    monkeypatch.setattr(client, "_AT_ONCE", 5)


def hostile_records(random: Random, first: int) -> list[Message]:
    """Records as a topic may have them; those that are events have the numbers from `first` on as values."""
    return [
        Message(
            random.choice(VALUES) if random.random() < 0.3 else event(first + number, random.randrange(7_200)).encode(),
            random.choice(KEYS),
            random.choice((None, at(random.randrange(600)))),
            random.choice(HEADERS),
        )
        for number in range(random.randrange(1, 9))
    ]


def sent_to(kafka: Broker, topic: str, partitions: int, random: Random) -> int:
    """Hostile records, alone and in transactions of which some are aborted; the number of those to be read."""
    sent = 0
    for turn in range(12):
        records, partition = hostile_records(random, 100 * turn), random.randrange(partitions)
        how = random.choice(("alone", "committed", "aborted"))
        if how == "alone":
            kafka.send(topic, records, partition)
        else:
            kafka.send_transaction(topic, records, partition, aborted=how == "aborted")
        sent += 0 if how == "aborted" else len(records)
    return sent


@pytest.mark.long
@IN_THE_DRIVER_OR_A_JOB
def test_tasks_and_spark_make_the_same_log_of_any_records_also_of_a_batch_that_was_begun_before(
    spark: SparkSession,
    lake: Lake,
    kafka: Broker,
    topic: str,
    small_tasks: None,
    monkeypatch: pytest.MonkeyPatch,
    little: int,
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "both")
    monkeypatch.setattr(tasks, "_LITTLE", little)
    kafka.create(topic, 3)
    random = draws("records")
    sent = sent_to(kafka, topic, 3, random)
    derived = {"key": "cast(_origin.key as string)", "sent_at": "_origin.timestamp", "headers": "size(_origin.headers)"}
    pipeline = piped(Kafka(kafka.servers, topic, headers=True, rows_per_batch=17), derived=derived)
    commit, killed = log.ingest.commit_batch, [3]

    def dies(*args: Any) -> Any:
        killed[0] -= 1
        if not killed[0]:
            raise RuntimeError("the process dies")
        return commit(*args)

    monkeypatch.setattr("streaming.log.ingest.commit_batch", dies)
    with pytest.raises(Exception, match="the process dies"):
        run(spark, lake, pipeline)
    sent += sent_to(kafka, topic, 3, random)
    run(spark, lake, pipeline)
    origins = log.read_log(spark, lake, pipeline.stream).where("_origin is not null").select("_origin.*")
    places = [(row["partition"], row["offset"]) for row in origins.collect()]
    assert (len(places), len(set(places))) == (sent, sent), f"seed {LAW_SEED}"


@pytest.mark.sampled
@IN_THE_DRIVER_OR_A_JOB
def test_records_that_are_removed_once_their_batch_is_planned_are_an_error_that_names_them_or_skipped_as_declared(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch, little: int
) -> None:
    monkeypatch.setattr(tasks, "_LITTLE", little)
    kafka.create(topic)
    kafka.send(topic, [event(number) for number in range(5)])

    def and_remove(*args: Any) -> Any:
        parts = shared_out(*args)
        kafka.remove_before(topic, 0, 2)
        return parts

    monkeypatch.setattr(client, "shared_out", and_remove)
    with pytest.raises(SourceError, match=rf"2 offsets of .* before they were read: {topic}-0 offsets 0 to 1\. .*skip"):
        run(spark, lake, piped(Kafka(kafka.servers, topic)))
    skipping = piped(Kafka(kafka.servers, topic, when_lost="skip"))
    assert log.head(lake, skipping.stream) is None
    run(spark, lake, skipping)
    assert values(spark, lake, skipping) == [2, 3, 4]


def records_of(kafka: Broker, topic: str, ranges: dict[Partition, Range], *, skips: bool = False) -> Records:
    return Records(for_tasks(kafka.servers, client_options({})), {topic: "id"}, False, skips, "here", ranges)


def offsets_of(records: Records) -> list[int]:
    return [offset for each in records.batches() for offset in each.column("_origin").field("offset").to_pylist()]


def test_records_removed_between_planning_and_reading_are_skipped_only_where_that_is_declared(
    kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 2)
    for partition in (0, 1):
        kafka.send(topic, [event(number) for number in range(5)], partition)
    kafka.remove_before(topic, 0, 3)
    ranges: dict[Partition, Range] = {(topic, 0): (1, 4), (topic, 1): (0, 2)}
    with pytest.raises(SourceError, match=rf"2 offsets of here .*: {topic}-0 offsets 1 to 2\."):
        offsets_of(records_of(kafka, topic, ranges))
    assert sorted(offsets_of(records_of(kafka, topic, ranges, skips=True))) == [0, 1, 3]
    assert offsets_of(records_of(kafka, topic, {(topic, 0): (0, 3)}, skips=True)) == []


def test_offsets_that_brokers_have_lost_or_do_not_give_are_an_error(
    kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_RECORDS_WITHIN", 2.0)
    kafka.create(topic)
    kafka.send(topic, [event(number) for number in range(3)])
    for skips in (False, True):
        with pytest.raises(SourceError, match=rf"{topic}-0 ends at 3 now, and offsets 9 to 11 of it were to be read"):
            offsets_of(records_of(kafka, topic, {(topic, 0): (9, 12)}, skips=skips))
    with pytest.raises(SourceError, match=rf"no broker gave {topic}-0 offsets 3 to 4 within 2 s"):
        offsets_of(records_of(kafka, topic, {(topic, 0): (1, 5)}))


def test_one_consumer_reads_one_range_after_another_and_nothing_that_lies_behind_them(
    kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 2)
    for partition in (0, 1):
        kafka.send(topic, [event(number) for number in range(50)], partition)
    records = records_of(kafka, topic, {})
    idle = client._idle.setdefault(frozenset({**client._SETTINGS, **records.client}.items()), [])
    idle.clear()
    for first in (0, 10, 20, 5):
        # One range ends long before the other one.
        ranges = {(topic, 0): (first, first + 1), (topic, 1): (first, first + 20)}
        expected = sorted([first, *range(first, first + 20)])
        assert sorted(offsets_of(replace(records, ranges=ranges))) == expected
        (consumer,) = idle
        assert consumer.assignment() == [], "it fetches nothing meanwhile"
    abandoned = replace(records, ranges={(topic, 1): (0, 50)}).batches()
    next(abandoned)
    assert idle == []
    abandoned.close()  # type: ignore[attr-defined]
    assert idle == [], "what was abandoned may have rows of another range on its way"


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40_000), st.integers(0, 40_000)), max_size=12),
    st.integers(1, 4),
)
def test_ranges_are_shared_out_whole_among_no_more_parts_than_are_worth_it(
    drawn: list[tuple[int, int, int]], number: int
) -> None:
    begins = itertools.accumulate((gap + 1 for _, gap, _ in drawn), initial=0)
    ranges: list[tuple[Partition, Range]] = [
        (("t", partition), (50_000 * place + first, 50_000 * place + first + size))
        for place, ((partition, _, size), first) in enumerate(zip(drawn, begins, strict=False))
    ]
    groups = shared_out(Records({}, {}, False, False, "", {}), ranges, number)
    read = [(partition, *bounds) for group in groups for part in group for partition, bounds in part.ranges.items()]
    expected = sum(end - first for _, (first, end) in ranges)
    assert sum(end - first for _, first, end in read) == expected
    for partition, (first, end) in ranges:
        inside = sorted((a, b) for of, a, b in read if of == partition and a >= first and b <= end)
        assert sum(b - a for a, b in inside) == end - first
    assert len(groups) <= number
    assert all(group and all(part.ranges for part in group) for group in groups)
    few = min(2, number)
    assert len(groups) >= few or expected < few * 2 * client._FOR_ONE_TASK


def test_an_option_that_only_javas_client_takes_lets_spark_read_and_is_told(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create(topic)
    kafka.send(topic, [event(1)])

    def refused(*args: Any) -> Any:
        raise AssertionError("read by tasks")

    monkeypatch.setattr(Records, "batches", refused)
    options = {"request.timeout.ms": "20000", "fetch.max.bytes": "1000000"}
    pipeline = piped(Kafka(kafka.servers, topic, options=options))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [1]
    places = log.places_of_ingest(spark, pipeline.stream, {})
    assert places.judgement is not None, "tasks judge the rows"
    reason = "request.timeout.ms is an option of Java's client alone"
    assert part_row(places.parts[0]) == ("payloads", "Kafka", "Spark, and on to tasks", reason)
    plain = log.places_of_ingest(spark, piped(Kafka(kafka.servers, topic)).stream, {})
    assert plain.parts[0].kind == "format"

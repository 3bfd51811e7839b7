"""Topics as a source: the contract, and circumstances that are not as they should be."""

from __future__ import annotations

import itertools
import json
import pickle
import re
import shutil
import time
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, log
from streaming.audit.laws import audit
from streaming.base.errors import CheckpointError, SourceError
from streaming.sources import Kafka
from streaming.sources.kafka import client
from streaming.sources.kafka.client import FIRST_BEYOND_SPARK
from tests.streaming.sources.contract import SourceCase, SourceContract
from tests.support.instants import at, ms
from tests.support.kafka import PASSWORD, USER, Broker, Message
from tests.support.runs import run
from tests.support.topics import event, piped, values

_NUMBERS = itertools.count()
LOGIN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": USER,
    "sasl.password": "${KAFKA_PASSWORD}",
}
MEGABYTES_10 = 10 * 1024 * 1024


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"source-{next(_NUMBERS)}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Who asks does not wait long for an answer."""
    monkeypatch.setattr(client, "_REQUEST_WITHIN", 1.0)
    yield
    client.client_of.cache_clear()


class KafkaCase(SourceCase):
    """One partition; a delivery is called by its first offset."""

    def __init__(self, kafka: Broker, topic: str) -> None:
        self.source = Kafka(kafka.servers, topic, rows_per_batch=3)
        self._kafka = kafka
        self._topic = topic
        self._sent: list[bytes] = []
        kafka.create(topic)

    def deliver(self, *payloads: bytes) -> str:
        self._kafka.send(self._topic, payloads)
        self._sent += payloads
        return str(len(self._sent) - len(payloads))

    def change(self, name: str) -> None:
        self.remove()
        self._kafka.create(self._topic)
        self._kafka.send(self._topic, self._sent)

    def lose(self, name: str) -> None:
        self._kafka.remove_before(self._topic, 0, int(name) + 1)

    def remove(self) -> None:
        self._kafka.delete(self._topic)

    def called(self, lake: Lake) -> str:
        return self._topic

    def speaks_of(self, words: str, name: str) -> bool:
        ranges = re.findall(r"offsets (\d+)(?: to (\d+))?", words)
        # Of a topic as a whole nothing is told by offsets.
        return not ranges or any(int(first) <= int(name) <= int(last or first) for first, last in ranges)


class TestKafka(SourceContract):
    @pytest.fixture
    def case(self, kafka: Broker, topic: str) -> KafkaCase:
        return KafkaCase(kafka, topic)


def events(*numbers: int) -> list[str]:
    return [event(number) for number in numbers]


def findings(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[str]:
    return [finding.advice for finding in audit(spark, lake, pipeline) if finding.broken]


def warning(lake: Lake, pipeline: Pipeline) -> str:
    head = log.head(lake, pipeline.stream)
    assert head is not None
    return pipeline.stream.source.backlog(lake, lake.checkpoint(pipeline.stream, log.QUERY))(head.source).warning


def test_a_server_where_nobody_answers_and_a_topic_that_is_not_there_are_named(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, impatient: None
) -> None:
    with pytest.raises(SourceError, match=r"no Kafka broker answers at '127.0.0.1:9' .*correct servers"):
        run(spark, lake, piped(Kafka("127.0.0.1:9", topic)))
    kafka.create(topic)
    with pytest.raises(SourceError, match=rf"no topic '{topic}x' .*topics there are: .*{topic}.*Nothing was read"):
        run(spark, lake, piped(Kafka(kafka.servers, f"{topic}x")))


@pytest.mark.long
@pytest.mark.parametrize("rows", [1, 9], ids=["with fewer rows", "filled past where the stream was"])
def test_a_topic_that_was_created_again_is_refused_until_the_stream_begins_anew(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, rows: int
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(0, 1, 2))
    pipeline = piped(Kafka(kafka.servers, topic))
    run(spark, lake, pipeline)

    kafka.delete(topic)
    kafka.create(topic)
    kafka.send(topic, events(*range(10, 10 + rows)))
    checkpoint = lake.checkpoint(pipeline.stream, log.QUERY)
    with pytest.raises(
        SourceError, match=rf"created again.*{topic}-0 offsets 0 to 2.*move the checkpoint '{checkpoint}'"
    ):
        run(spark, lake, pipeline)
    assert any("created again" in advice for advice in findings(spark, lake, pipeline))

    shutil.rmtree(checkpoint)
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1, 2, *range(10, 10 + rows)]
    assert findings(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_topic_of_a_pattern_that_is_deleted_is_refused_until_the_stream_begins_anew(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    for number, name in enumerate((f"{topic}-a", f"{topic}-b")):
        kafka.create(name)
        kafka.send(name, events(number))
    pipeline = piped(Kafka(kafka.servers, pattern=f"{topic}-."))
    run(spark, lake, pipeline)
    kafka.delete(f"{topic}-a")
    kafka.send(f"{topic}-b", events(2))

    checkpoint = lake.checkpoint(pipeline.stream, log.QUERY)
    with pytest.raises(
        SourceError, match=rf"'{topic}-a' is not there any more.*{topic}-a-0 offsets 0 .*'{checkpoint}'"
    ):
        run(spark, lake, pipeline)
    shutil.rmtree(checkpoint)
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1, 2]


@pytest.mark.long
def test_offsets_that_are_declared_begin_their_partitions_and_those_that_no_partition_has_are_refused(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 2)
    kafka.send(topic, events(0, 1, 2))
    kafka.send(topic, events(3, 4), partition=1)
    starts: tuple[tuple[dict[int | str, int], str], ...] = (
        ({0: 4}, rf"begins {topic}-0 at 4, and it holds the offsets from 0 to before 3"),
        ({2: 0}, rf"names {topic}-2, and the partitions are {topic}-0, {topic}-1"),
    )
    for start, reason in starts:
        with pytest.raises(SourceError, match=reason):
            run(spark, lake, piped(Kafka(kafka.servers, topic, start=start)))
    pipeline = piped(Kafka(kafka.servers, topic, start={0: 2}))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [2, 3, 4]


@pytest.mark.long
def test_rows_that_went_before_they_were_read_are_refused_by_their_offsets_and_skipped_only_as_declared(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(0, 1))
    pipeline = piped(Kafka(kafka.servers, topic))
    run(spark, lake, pipeline)
    kafka.send(topic, events(2, 3, 4, 5))
    kafka.remove_before(topic, 0, 4)

    with pytest.raises(
        SourceError, match=rf"2 offsets of .* before they were read: {topic}-0 offsets 2 to 3\. .*'skip'"
    ):
        run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1]

    skipping = piped(Kafka(kafka.servers, topic, when_lost="skip"))
    run(spark, lake, skipping)
    assert values(spark, lake, skipping) == [0, 1, 4, 5]
    assert f"left out as declared by when_lost: {topic}-0 offsets 2 to 3" in warning(lake, skipping)
    run(spark, lake, pipeline)
    assert f"{topic}-0 offsets 2 to 3" in warning(lake, pipeline), "it stays known"


@pytest.mark.long
def test_rows_of_aborted_transactions_are_none_and_only_what_is_no_marker_is_a_gap(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send_transaction(topic, events(0, 1))
    kafka.send_transaction(topic, events(2, 3, 4), aborted=True)
    kafka.send_transaction(topic, events(5))
    committed = piped(Kafka(kafka.servers, topic), name="committed")
    every = piped(Kafka(kafka.servers, topic, options={"isolation.level": "read_uncommitted"}), name="every")
    for pipeline in (committed, every):
        run(spark, lake, pipeline)
        assert warning(lake, pipeline) == ""
    assert values(spark, lake, committed) == [0, 1, 5]
    assert values(spark, lake, every) == [0, 1, 2, 3, 4, 5]


@pytest.mark.long
def test_what_compaction_took_is_counted_as_gaps_and_shown(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "both")
    kafka.create(
        topic,
        cleanup_policy="compact",
        segment_ms="50",
        min_cleanable_dirty_ratio="0.01",
        max_compaction_lag_ms="50",
    )
    source = Kafka(kafka.servers, topic)
    kafka.send(topic, [Message(event(number).encode(), b"one key") for number in range(6)])
    asked, deadline = client.client_of(source.servers, source.options), time.monotonic() + 60
    while asked.first_offset_from((topic, 0), 0) == 0:
        # Only segments that are not written to any more are compacted.
        kafka.send(topic, [Message(event(7).encode(), b"another key")])
        assert time.monotonic() < deadline, "the broker compacts nothing"
    pipeline = piped(source)
    run(spark, lake, pipeline)
    assert {*values(spark, lake, pipeline)} == {5, 7}
    match = re.search(
        rf"Offsets that brought no row and end no transaction: (\d+) of {topic}-0\.", warning(lake, pipeline)
    )
    assert match and int(match[1]) >= 5
    assert findings(spark, lake, pipeline) == []


@pytest.mark.long
def test_values_and_keys_may_be_null_or_long_and_compressed_in_any_way(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, max_message_bytes="20000000")
    codecs = ("none", "gzip", "snappy", "lz4", "zstd")
    for number, codec in enumerate(codecs):
        compressed: dict[str, Any] = {"compression.type": codec}
        kafka.send(topic, [Message(event(number).encode(), at=at(number))], **compressed)
    long = json.dumps({"id": "x" * MEGABYTES_10, "at": "2026-01-01T00:00:00Z", "value": 5})
    kafka.send(topic, [Message(long.encode(), at=at(5))], **{"message.max.bytes": 20_000_000})
    kafka.send(topic, [Message(None, b"gone", at(6)), Message(None, at=at(7)), Message(b"", b"empty", at(8))])
    pipeline = piped(
        Kafka(kafka.servers, topic),
        derived={"key": "cast(_origin.key as string)", "sent_at": "_origin.timestamp"},
        event_time="sent_at",
    )
    run(spark, lake, pipeline)
    rows = log.read_log(spark, lake, pipeline.stream)
    records = {row["_origin"]["offset"]: row for row in rows.where("_origin is not null").collect()}
    assert [records[offset]["value"] for offset in range(6)] == [0, 1, 2, 3, 4, 5]
    assert len(records[5]["id"]) == MEGABYTES_10
    tombstones = [(records[offset]["_rejected"], records[offset]["key"], records[offset]["value"]) for offset in (6, 7)]
    assert tombstones == [(None, "gone", None), (None, None, None)]
    assert (records[8]["_rejected"], records[8]["key"]) == (["json: the payload is not one JSON object"], "empty")


@pytest.mark.long
def test_record_times_of_a_clock_that_is_wrong_are_rejected_ahead_and_late_behind_and_move_no_watermark(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    # Brokers refuse what is an hour ahead, unless they are told that clocks may be.
    kafka.create(topic, message_timestamp_after_max_ms=str(2**63 - 1))
    pipeline = piped(Kafka(kafka.servers, topic), derived={"sent_at": "_origin.timestamp"}, event_time="sent_at")
    years = 20 * 365 * 86_400
    for batch in ({0: 0, 1: years, 2: 7_200}, {3: 7_200, 4: -years}):
        kafka.send(topic, [Message(event(number).encode(), at=at(seconds)) for number, seconds in batch.items()])
        run(spark, lake, pipeline)
    rows = {
        row["value"]: row for row in log.read_log(spark, lake, pipeline.stream).where("value is not null").collect()
    }
    reasons = {number: row["_rejected"] for number, row in rows.items() if row["_rejected"]}
    assert [*reasons] == [1] and "sent_at" in reasons[1][0]
    assert {rows[number]["_watermark"] for number in (3, 4)} == {at(3_600).replace(tzinfo=None)}


@pytest.mark.long
def test_an_older_copy_of_the_checkpoint_is_refused_and_without_it_nothing_is_lost(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    pipeline = piped(Kafka(kafka.servers, topic))
    checkpoint = Path(lake.checkpoint(pipeline.stream, log.QUERY))
    kafka.send(topic, events(0, 1))
    run(spark, lake, pipeline)
    shutil.copytree(checkpoint, checkpoint.with_name("copy"))
    kafka.send(topic, events(2))
    run(spark, lake, pipeline)

    shutil.rmtree(checkpoint)
    checkpoint.with_name("copy").rename(checkpoint)
    kafka.send(topic, events(3))
    with pytest.raises(CheckpointError, match=rf"an older copy: .* but not {topic}-0 offsets 3, .*move the checkpoint"):
        run(spark, lake, pipeline)
    shutil.rmtree(checkpoint)
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1, 2, 3]


@pytest.mark.long
def test_a_process_that_died_between_the_commits_of_log_and_checkpoint_adds_nothing_twice(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 2)
    pipeline = piped(Kafka(kafka.servers, topic, rows_per_batch=2))
    kafka.send(topic, events(0, 1, 2))
    kafka.send(topic, events(3), partition=1)
    run(spark, lake, pipeline)
    head = log.head(lake, pipeline.stream)
    assert head is not None

    commits = Path(lake.checkpoint(pipeline.stream, log.QUERY), "commits")
    for name in (f"{head.query_batch}", f".{head.query_batch}.crc"):
        (commits / name).unlink(missing_ok=True)
    kafka.send(topic, events(4))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1, 2, 3, 4]
    assert findings(spark, lake, pipeline) == []


def test_a_topic_that_the_user_may_not_read_is_refused_with_the_right_that_is_missing(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(1))
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    pipeline = piped(Kafka(kafka.secured, topic, options=LOGIN))
    with pytest.raises(SourceError, match=r"refuse to tell about the topics .*the right to describe and read them"):
        run(spark, lake, pipeline)
    kafka.allow(topic)
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [1]


@pytest.mark.long
def test_no_secret_is_in_what_is_printed_kept_or_said(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(1))
    kafka.allow(topic)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORD)
    for options in (LOGIN, {**LOGIN, "sasl.password": PASSWORD}):
        source = Kafka(kafka.secured, topic, options=options)
        assert PASSWORD not in repr(source) and "'sasl.password': '***'" in repr(source)
        assert pickle.loads(pickle.dumps(source)) == source
        pipeline = piped(source)
        run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [1]
    kept = [path for path in Path(lake.root).rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == []

    for refused in ("not " + PASSWORD, "${KAFKA_PASSWORD_OF_NOBODY}"):
        with pytest.raises(SourceError) as raised:
            run(spark, lake, piped(Kafka(kafka.secured, topic, options={**LOGIN, "sasl.password": refused})))
        assert "not " + PASSWORD not in str(raised.value)


@pytest.mark.long
def test_a_broker_that_was_away_is_waited_for_and_nothing_is_lost(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str, impatient: None
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(0, 1))
    pipeline = piped(Kafka(kafka.servers, topic))
    run(spark, lake, pipeline)
    kafka.kill()
    with pytest.raises(SourceError, match="no Kafka broker answers"):
        run(spark, lake, pipeline)
    kafka.start()
    kafka.send(topic, events(2))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [0, 1, 2]


@pytest.mark.long
def test_records_without_a_time_that_an_instant_can_have_are_read_and_their_time_is_null(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, message_timestamp_after_max_ms=str(2**63 - 1))
    producer = Producer({"bootstrap.servers": kafka.servers, "log_level": 0})
    for place, millis in enumerate((ms(at(1)), FIRST_BEYOND_SPARK, 300_000_000_000_000, ms(at(2)))):
        producer.produce(topic, event(place), b"key", 0, timestamp=millis, headers=[("h", b"x")])
        assert producer.flush(30) == 0
    kafka.send_transaction(topic, events(4))
    # No record follows these, which are none.
    kafka.send_transaction(topic, events(5, 6), aborted=True)
    pipeline = piped(Kafka(kafka.servers, topic, headers=True, rows_per_batch=3))
    run(spark, lake, pipeline)
    run(spark, lake, pipeline, end_of_input=True)
    assert values(spark, lake, pipeline) == list(range(5))
    origins = [
        row["_origin"]
        for row in log.read_log(spark, lake, pipeline.stream).where("_origin is not null").orderBy("_origin").collect()
    ]
    times = [None if each["timestamp"] is None else ms(each["timestamp"].astimezone(UTC)) for each in origins]
    assert times[:4] == [ms(at(1)), None, None, ms(at(2))]
    assert {bytes(each["key"]) for each in origins[:4]} == {b"key"} and origins[1]["headers"][0]["key"] == "h"
    assert origins[4]["headers"] is None
    assert findings(spark, lake, pipeline) == []

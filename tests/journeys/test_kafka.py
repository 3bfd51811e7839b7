"""Golden tests of topics as a source, on a real broker. Every row has its value as its place in the story."""

from __future__ import annotations

import itertools
import re
import shutil
from datetime import timedelta

import pytest
from pyspark.sql import SparkSession

from streaming import Ascending, Json, Lake, Pipeline, drain, log
from streaming.audit.laws import audit
from streaming.declare import Stream
from streaming.sources import CommittedOffsets, Kafka, SourceBacklog
from tests.support.instants import NOW, at
from tests.support.kafka import Broker, Message
from tests.support.runs import run, tuples
from tests.support.topics import event, piped, values

_NUMBERS = itertools.count()


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"golden-{next(_NUMBERS)}"


def events(*numbers: int) -> list[str]:
    return [event(number) for number in numbers]


def sent(number: int, second: float) -> Message:
    """A row whose record time is `second` seconds after T0."""
    return Message(event(number).encode(), at=at(second))


def waiting(lake: Lake, stream: Stream) -> SourceBacklog:
    head = log.head(lake, stream)
    count = stream.source.backlog(lake, lake.checkpoint(stream, log.QUERY))
    return count({} if head is None else head.source)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[str]:
    return [str(finding) for finding in audit(spark, lake, pipeline) if finding.broken]


@pytest.mark.long
def test_s8_all_topics_of_a_pattern_bring_every_value_once_with_its_origin(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 2)
    kafka.create(f"{topic}-other")
    kafka.send(topic, [Message(event(1).encode(), b"k1", at(1), [("trace", b"t1")]), event(2)])
    kafka.send(topic, [event(3)], partition=1)
    kafka.send(f"{topic}-other", [event(4), "not JSON"])
    listed = Kafka(kafka.servers, topics=(topic, f"{topic}-other"))
    pipeline = piped(Kafka(kafka.servers, pattern=f"{topic}.*", headers=True, rows_per_batch=2))
    stream = pipeline.stream
    assert waiting(lake, stream).partitions == {f"{topic}-0": 2, f"{topic}-1": 1, f"{topic}-other-0": 2}

    run(spark, lake, pipeline)
    again = run(spark, lake, pipeline)

    assert "log" not in again.queries and waiting(lake, stream).items == 0
    assert values(spark, lake, pipeline) == [1, 2, 3, 4]
    rows = log.read_log(spark, lake, stream)
    assert [bytes(row["_raw"]) for row in log.rejected(rows).collect()] == [b"not JSON"]
    ids = {name: there.id for name, there in listed.topics_there().items()}
    (first,) = rows.where("value = 1").select("_origin.*").collect()
    assert (first["topic"], first["topic_id"], first["partition"], first["offset"]) == (topic, ids[topic], 0, 0)
    assert (bytes(first["key"]), first["headers"][0]["key"], bytes(first["headers"][0]["value"])) == (
        b"k1",
        "trace",
        b"t1",
    )
    assert tuples(rows.where("value = 1"), "_origin.timestamp") == [(at(1),)]
    assert tuples(rows.where("value = 4"), "_origin.topic_id") == [(ids[f"{topic}-other"],)]
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_s9_a_group_says_where_the_first_start_begins_and_the_checkpoint_where_every_other(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(*range(7)))
    kafka.commit(f"group of {topic}", topic, {0: 4})
    of_group = piped(Kafka(kafka.servers, topic, start=CommittedOffsets(f"group of {topic}")))
    assert waiting(lake, of_group.stream).items == 3
    run(spark, lake, of_group)
    assert values(spark, lake, of_group) == [4, 5, 6]

    kafka.send(topic, events(7, 8, 9))
    from_earliest = piped(Kafka(kafka.servers, topic, start="earliest"))
    run(spark, lake, from_earliest)

    assert values(spark, lake, from_earliest) == [4, 5, 6, 7, 8, 9]
    warning = waiting(lake, from_earliest.stream).warning
    assert "start='earliest' is declared, and the stream goes on where it is" in warning
    assert "What the log holds is not read twice".lower() in warning.lower()
    assert waiting(lake, of_group.stream).warning == ""


def test_s9_a_group_that_has_committed_nothing_reads_later_records_only(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(0, 1))
    pipeline = piped(Kafka(kafka.servers, topic, start=CommittedOffsets("nobody")))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == []
    kafka.send(topic, events(2))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [2]


@pytest.mark.long
def test_s10_a_timestamp_begins_at_the_first_record_of_then_or_later_and_else_waits_for_new_ones(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, [sent(0, 5), sent(1, 10), sent(2, 10), sent(3, 20)])
    from_10 = piped(Kafka(kafka.servers, topic, start=at(10)), name="from_10")
    from_21 = piped(Kafka(kafka.servers, topic, start=at(21)), name="from_21")
    run(spark, lake, from_10)
    run(spark, lake, from_21)
    assert values(spark, lake, from_21) == []

    kafka.send(topic, [sent(4, 15)])
    for pipeline in (from_10, from_21):
        run(spark, lake, pipeline)
    assert values(spark, lake, from_10) == [1, 2, 3, 4]
    assert values(spark, lake, from_21) == [4]


@pytest.mark.long
def test_s11_a_rewind_without_the_old_state_reads_what_the_log_lacks_and_counts_nothing_twice(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, [sent(number, 600 * number) for number in range(10)])
    pipeline = piped(Kafka(kafka.servers, topic, start=at(600 * 4)))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [4, 5, 6, 7, 8, 9]

    shutil.rmtree(lake.checkpoint(pipeline.stream, log.QUERY))
    kafka.send(topic, [sent(number, 600 * number) for number in (10, 11)])
    rewound = piped(Kafka(kafka.servers, topic, start=at(600 * 2), rows_per_batch=3))
    run(spark, lake, rewound)
    assert values(spark, lake, rewound) == list(range(2, 12))
    read = [batch.summary.rows for batch in log.read_batches(lake, rewound.stream) if batch.cause == "source"]
    assert sum(read) == 10, "what the log held is no row of the batches that read it again"

    # Whoever loses the state and would begin at the end has lost nothing all the same.
    shutil.rmtree(lake.checkpoint(pipeline.stream, log.QUERY))
    kafka.send(topic, [sent(12, 600 * 12)])
    normal = piped(Kafka(kafka.servers, topic, start="latest"))
    run(spark, lake, normal)
    assert values(spark, lake, normal) == list(range(2, 13))
    assert broken(spark, lake, normal) == []


@pytest.mark.long
def test_s12_a_partition_and_a_topic_that_are_added_bring_all_their_rows(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic)
    kafka.send(topic, events(0))
    pipeline = piped(Kafka(kafka.servers, pattern=f"{re.escape(topic)}(-new)?", start="latest"))
    run(spark, lake, pipeline)
    kafka.send(topic, events(1))
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [1]

    kafka.add_partitions(topic, 2)
    kafka.create(f"{topic}-new")
    kafka.send(topic, events(2, 3), partition=1)
    kafka.send(f"{topic}-new", events(4, 5))
    assert waiting(lake, pipeline.stream).partitions == {f"{topic}-1": 2, f"{topic}-new-0": 2}
    run(spark, lake, pipeline)
    assert values(spark, lake, pipeline) == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_s13_six_partitions_that_move_apart_make_no_late_row_and_an_idle_one_holds_nothing_up(
    spark: SparkSession, lake: Lake, kafka: Broker, topic: str
) -> None:
    kafka.create(topic, 6)
    for partition in range(6):
        # Each is in order, and an hour behind the one before it.
        seconds = [3600 * (6 - partition) + 900 * step for step in range(4)]
        kafka.send(topic, [sent(1, second) for second in seconds], partition)
    pipeline = piped(
        Kafka(kafka.servers, topic, rows_per_batch=6),
        clock=Ascending(idle_after="2 minutes"),
        derived={"sent_at": "_origin.timestamp"},
        event_time="sent_at",
        format=Json("value bigint"),
    )

    def watermark_after(silent_for: timedelta) -> object:
        drained = drain(spark, lake, pipeline, now=lambda: NOW + silent_for)
        assert drained.head is not None
        return drained.head.after.watermark

    assert watermark_after(timedelta(0)) == at(3600 + 2700), "the least of the six"
    batches = [batch for batch in log.read_batches(lake, pipeline.stream) if batch.cause == "source"]
    assert len(batches) >= 4 and [batch.late for batch in batches] == [{"by_hour": 0}] * len(batches)

    kafka.send(topic, [sent(1, 3600 * 8)])
    assert watermark_after(timedelta(minutes=3)) == at(3600 * 8), "five are silent"
    kafka.send(topic, [sent(1, 3600 * 3)], partition=5)
    watermark_after(timedelta(minutes=4))
    assert [batch.late for batch in log.read_batches(lake, pipeline.stream)[:1]] == [{"by_hour": 1}]

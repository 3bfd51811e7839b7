"""A partition gets another leader while rows of it are read and while rows are delivered to it: three real brokers."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest
from pyspark.sql import SparkSession

from streaming import Delivery, Kafka, KafkaTopic, Lake, Pipeline, log
from streaming.audit.deliveries import audit_deliveries
from streaming.audit.laws import audit
from tests.support.crash import Point, armed
from tests.support.kafka_cluster import Cluster
from tests.support.received import received
from tests.support.runs import run
from tests.support.services import starting
from tests.support.topics import event, piped
from tests.support.waiting import until

pytestmark = pytest.mark.processes

PARTITIONS, ROWS, HOURS, A_BATCH = 3, 900, 6, 300
SENT, ARRIVED, WINDOWS = "sent", "arrived", "windows"
READING = Point("", "streaming.sources.kafka.source", "take_batch", 2)
"""The second batch is planned, and none of its rows is read."""
DELIVERING = Point("", "streaming.sinks.kafka.sink:RecordProducer", "_produce", A_BATCH + A_BATCH // 2)
"""Half of the second batch is on its way."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers with a topic to read and two to deliver to, each of three partitions."""
    brokers = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        with starting("Kafka"):
            brokers.start()
        for topic in (SENT, ARRIVED, WINDOWS):
            brokers.create(topic, PARTITIONS)
        yield brokers
    finally:
        brokers.stop()


def pipeline_on(cluster: Cluster) -> Pipeline:
    """Rows counted by hour; each row delivered, and what is current of the hours."""
    of_rows = piped(Kafka(cluster.servers, SENT, rows_per_batch=A_BATCH))
    stream, (by_hour,) = of_rows.stream, of_rows.views
    rows = Delivery("rows", stream, KafkaTopic(cluster.servers, ARRIVED, key=("value",)), batch=A_BATCH)
    hours = Delivery("hours", by_hour, KafkaTopic(cluster.servers, WINDOWS), what="current")
    return replace(of_rows, deliveries=(rows, hours))


class Sender:
    """Sends rows of six hours at a time, and counts them itself."""

    def __init__(self, cluster: Cluster) -> None:
        self.sent = 0
        self.by_hour: Counter[int] = Counter()
        self._cluster = cluster
        self._random = random.Random(18)

    def send(self) -> None:
        """As many more rows, whose values go on, on all partitions."""
        rows, first_hour = ROWS // PARTITIONS, self.sent // ROWS * HOURS
        for partition in range(PARTITIONS):
            hours = [first_hour + each * HOURS // rows for each in range(rows)]
            sent = [
                event(self.sent + each, 3600 * hour + self._random.randrange(3600)) for each, hour in enumerate(hours)
            ]
            self._cluster.send(SENT, sent, partition)
            self.by_hour.update(hours)
            self.sent += rows


@pytest.mark.long
def test_a_leader_that_changes_in_mid_batch_or_in_mid_delivery_loses_and_doubles_no_row(
    spark: SparkSession, lake: Lake, cluster: Cluster
) -> None:
    pipeline, sender = pipeline_on(cluster), Sender(cluster)

    def changes_its_leader(topic: str) -> None:
        led.append((topic, cluster.kill_leader(topic)))

    led: list[tuple[str, int]] = []
    for point, topic in ((READING, SENT), (DELIVERING, ARRIVED)):
        cluster.restore()
        sender.send()
        with armed(point, partial(changes_its_leader, topic)):
            run(spark, lake, pipeline)
        assert led[-1][0] == topic
        assert cluster.leader(topic) not in (led[-1][1], -1), "another node leads"
    # A delivery that found no leader in time waits for the next run.
    until(lambda: run(spark, lake, pipeline, end_of_input=True).waiting == {}, "delivered", 120)

    logged = log.valid(log.read_log(spark, lake, pipeline.stream)).select("value").toArrow()["value"].to_pylist()
    assert sorted(logged) == list(range(sender.sent))
    arrived = [record.json["value"] for record in received(cluster, ARRIVED)]
    assert sorted(arrived) == list(range(sender.sent))
    changes = [json.loads(record.value) for record in received(cluster, WINDOWS) if record.value is not None]
    assert {row["window_start"]: row["events"] for row in changes} == {
        f"2026-01-01T{hour:02}:00:00Z": events for hour, events in sender.by_hour.items()
    }
    assert [str(finding) for finding in audit(spark, lake, pipeline) if finding.broken] == []
    assert [finding.holds and finding.checked > 0 for finding in audit_deliveries(spark, lake, pipeline)] == [True] * 4

"""A stream that reads topics on and on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event

import pytest
from pyspark.sql import SparkSession

from streaming import Kafka, Lake
from streaming.log.batches import read_batches
from streaming.service.continuous import Continuous, Ending
from streaming.service.status import ProcessStatus
from tests.support.instants import NOW
from tests.support.kafka import Broker
from tests.support.topics import event, piped, values

TOPIC = "live"


@pytest.mark.long
def test_rows_and_partitions_that_come_while_it_runs_are_taken_and_a_broker_that_dies_is_waited_for(
    spark: SparkSession, lake: Lake, kafka: Broker
) -> None:
    kafka.create(TOPIC)
    kafka.send(TOPIC, [event(0)])
    pipeline = replace(piped(Kafka(kafka.servers, TOPIC)), trigger="100 milliseconds")

    def more_rows() -> None:
        kafka.send(TOPIC, [event(1)])

    def a_new_partition() -> None:
        kafka.add_partitions(TOPIC, 2)
        kafka.send(TOPIC, [event(2), event(3)], partition=1)

    def a_broker_that_died() -> None:
        kafka.kill()
        kafka.start()
        kafka.send(TOPIC, [event(4)], partition=1)

    happens: Iterator[tuple[int, Callable[[], None]]] = iter(
        [(1, more_rows), (2, a_new_partition), (4, a_broker_that_died)]
    )
    awaited = next(happens)
    statuses: list[ProcessStatus] = []

    def ending() -> Ending | None:
        """Each thing happens once the rows before it are in the log."""
        nonlocal awaited
        rows = sum(batch.summary.rows for batch in read_batches(lake, pipeline.stream))
        if rows == 5:
            return "drain"
        if rows == awaited[0]:
            awaited[1]()
            awaited = next(happens, (5, a_new_partition))
        return None

    Continuous(spark, lake, pipeline, lambda: NOW, lambda measures: None, statuses.append).run(ending, Event())

    assert values(spark, lake, pipeline) == [0, 1, 2, 3, 4]
    backlogs = [status.backlog for status in statuses if status.backlog]
    assert backlogs and {part.unit for backlog in backlogs for part in backlog} == {"rows"}

"""A process that slept while another took over must not append what it stamped before."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import DataFrame, SparkSession

from streaming import Lake, log
from streaming.base.errors import FencedError
from streaming.log.batches import archive_batches, archived, read_batches
from streaming.log.ingest import Ingest, append_heartbeat, next_state
from streaming.service.drain import drain
from streaming.tables import delta
from tests.support.instants import NOW
from tests.support.pipelines.beats import pipeline
from tests.support.runs import run

STREAM = pipeline.stream
BEAT = {"id": "a", "at": "2026-01-01T00:00:00Z", "value": 1}


def test_a_batch_stamped_before_another_process_took_over_is_not_appended(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [BEAT])
    head = log.head(lake, STREAM)
    assert head is not None
    run(spark, lake, pipeline, [BEAT])  # the successor; the zombie still knows the old head
    before = read_batches(lake, STREAM)

    with pytest.raises(
        FencedError, match=rf"batch {head.number + 1} of 'beats' was not appended: batch {len(before)} is"
    ):
        append_heartbeat(spark, lake, STREAM, next_state(head), head, NOW)

    assert read_batches(lake, STREAM) == before


def test_a_zombie_that_wakes_in_the_middle_of_its_batch_is_fenced_off_and_nothing_is_twice(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ran the same Spark batch; the first one slept between the writing of its files and its commit."""
    run(spark, lake, pipeline, [BEAT])
    asleep, awake = threading.Event(), threading.Event()
    committed, outcome = log.commit_batch, []

    def sleepy(*arguments: Any) -> log.Batch:
        monkeypatch.setattr("streaming.log.ingest.commit_batch", committed)
        asleep.set()
        assert awake.wait(60)
        return committed(*arguments)

    def zombie(raw: DataFrame, batch: int) -> None:
        ingest = Ingest(spark, lake, STREAM, {}, lambda: NOW)
        try:
            ingest(raw, batch, log.head(lake, STREAM))
        except FencedError as error:
            outcome.append(error)

    monkeypatch.setattr("streaming.log.ingest.commit_batch", sleepy)
    raw = spark.createDataFrame([], "_raw binary, _origin struct<path: string, modified: timestamp, size: bigint>")
    late = threading.Thread(target=zombie, args=(raw, 1))
    late.start()
    assert asleep.wait(60)
    run(spark, lake, pipeline, [BEAT])
    awake.set()
    late.join(60)

    assert len(outcome) == 1
    numbers = [batch.number for batch in read_batches(lake, STREAM)]
    assert sorted(numbers) == list(range(len(numbers)))


@pytest.mark.long
def test_compaction_between_two_batches_or_in_one_is_waited_out(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline, [BEAT])
    run(spark, lake, pipeline, [BEAT])
    DeltaTable(lake.log(STREAM)).optimize.compact()
    head = log.head(lake, STREAM)
    assert head is not None

    staged = log.stage_batch(log.read_log(spark, lake, STREAM).where("_origin is not null").limit(1), lake, STREAM)
    DeltaTable(lake.log(STREAM)).optimize.z_order(["_batch"])
    batch = log.Batch(head.number + 1, None, None, head.state, head.summary, STREAM.clock)
    log.commit_batch(staged, lake, STREAM, batch)

    drain(spark, lake, pipeline, end_of_input=True, now=lambda: NOW + timedelta(hours=1))
    newest = log.head(lake, STREAM)
    assert newest is not None
    assert newest.number >= head.number + 1


def test_two_that_archive_at_the_same_moment_archive_each_batch_once(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, lake, pipeline, [BEAT], [BEAT], [BEAT])
    first = iter([True])

    def after_another(*args: Any, **options: Any) -> None:
        if next(first, False):
            assert archive_batches(lake, STREAM) == 3
        write_deltalake(*args, **options)

    monkeypatch.setattr("streaming.log.batches.write_deltalake", after_another)
    assert archive_batches(lake, STREAM) == 0
    assert sorted(archived(lake, STREAM)) == [0, 1, 2]
    assert delta.row_count(delta.open_table(lake.batches(STREAM))) == 3

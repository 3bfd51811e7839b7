"""A running pipeline between two batches."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

from pyspark.sql import SparkSession

from streaming import Lake
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.service.continuous import Continuous, Ending
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.pipelines.beats import pipeline


def run_one_batch(spark: SparkSession, lake: Lake, second: int) -> list[str]:
    """Run with one more reading, at a second of the day; returns what the batches since then came from."""
    before = len(read_batches(lake, pipeline.stream))
    land_all(lake, pipeline.stream, [{"id": "a", "at": at(second).isoformat(), "value": 1}])

    def ending() -> Ending | None:
        return "stop" if len(read_batches(lake, pipeline.stream)) > before else None

    # Neither the next batch nor the heartbeat of a silent source comes within the test.
    hourly = replace(pipeline, trigger="1 hour")
    Continuous(spark, lake, hourly, utc_now, lambda measures: None, lambda status: None).run(ending, Event())
    return [batch.cause for batch in read_batches(lake, pipeline.stream)][: -before or None][::-1]


def test_a_batch_that_lets_windows_close_is_followed_by_their_heartbeat_and_no_other_is(
    spark: SparkSession, lake: Lake
) -> None:
    """Windows of ten seconds, closed five seconds after they end."""
    assert run_one_batch(spark, lake, 11) == ["source", "heartbeat"]  # clock: 6 s, the first there is
    assert run_one_batch(spark, lake, 14) == ["source"]  # clock: 9 s
    assert run_one_batch(spark, lake, 15) == ["source", "heartbeat"]  # clock: 10 s, the end of the first window
    assert run_one_batch(spark, lake, 24) == ["source"]  # clock: 19 s
    assert run_one_batch(spark, lake, 99) == ["source", "heartbeat"]  # clock: 94 s, past several

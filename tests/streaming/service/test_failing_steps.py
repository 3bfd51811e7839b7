"""What fails behind a log is named by the operator and the batch from which it goes on, however often it is tried.

So a failure that comes again and again is known as one and the same, though the log goes on meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg, drain
from streaming.base.errors import QueryFailed
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.service.continuous import Continuous
from streaming.service.watch import FailedBatch, Watch
from tests.support.feeds import land_all
from tests.support.instants import NOW, at

parts = Stream(
    name="parts",
    source=Files("landing/parts"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
# In ANSI mode a zero raises whenever it is counted, and nothing is wrong with its row in the log.
shares = Windowed("shares", parts, Tumbling("10 seconds"), {"shares": agg.sum("60 div value")}, by=("id",))
pipeline = Pipeline(parts, (shares,), trigger="100 milliseconds")


def land(lake: Lake, *readings: tuple[int, int]) -> None:
    """A file with readings of one id, each a second and a value."""
    land_all(lake, parts, [{"id": "a", "at": at(second).isoformat(), "value": value} for second, value in readings])


def failed(spark: SparkSession, lake: Lake, of: Pipeline) -> FailedBatch:
    """Where a drain fails."""
    watch = Watch(lambda: NOW)
    with pytest.raises(QueryFailed, match=r"view 'shares' cannot be computed for some row: .*DIVIDE_BY_ZERO"):
        drain(spark, lake, of, watch=watch, now=lambda: NOW)
    assert watch.failed is not None
    return watch.failed


def failed_live(spark: SparkSession, lake: Lake, of: Pipeline) -> FailedBatch:
    """Where a process that runs on and on fails."""
    continuous = Continuous(spark, lake, of, utc_now, lambda measures: None, lambda status: None)
    with pytest.raises(QueryFailed, match=r"view 'shares' cannot be computed for some row: .*DIVIDE_BY_ZERO"):
        continuous.run(lambda: None, Event())
    assert continuous.watch.failed is not None
    return continuous.watch.failed


def test_a_step_that_fails_is_named_by_its_first_batch_however_many_have_come_since(
    spark: SparkSession, lake: Lake
) -> None:
    land(lake, (0, 1))
    drain(spark, lake, pipeline, now=lambda: NOW)
    land(lake, (1, 0))
    land(lake, (30, 1))
    failures = [failed(spark, lake, pipeline)]
    land(lake, (60, 1))
    failures.append(failed(spark, lake, pipeline))
    assert [(each.query, each.batch) for each in failures] == [("shares", 1)] * 2


def test_updates_that_fail_are_named_by_the_first_batch_that_has_none_yet(spark: SparkSession, lake: Lake) -> None:
    updated = replace(pipeline, operators=(replace(shares, late="update", allowed_lateness="1 hour"),))
    land(lake, (0, 1), (30, 1))
    drain(spark, lake, updated, now=lambda: NOW)
    land(lake, (1, 0))  # late, so that only updates count it
    failures = [failed(spark, lake, updated)]
    for second in (60, 90):
        land(lake, (second, 1))
        failures.append(failed_live(spark, lake, updated))
    assert [(each.query, each.batch) for each in failures] == [("shares", 1)] * 3


def test_open_windows_that_fail_are_named_by_the_first_batch_that_they_do_not_show(
    spark: SparkSession, lake: Lake
) -> None:
    """They hold up no log, in a drain either, which writes them after each batch."""
    shown = replace(pipeline, operators=(replace(shares, early="each batch"),))
    land(lake, (0, 1))
    drain(spark, lake, shown, now=lambda: NOW)
    land(lake, (1, 0))
    land(lake, (2, 1))
    failures = [failed(spark, lake, shown)]
    assert len(read_batches(lake, parts)) == 3
    land(lake, (3, 1))
    failures += [failed_live(spark, lake, shown), failed(spark, lake, shown)]
    assert [(each.query, each.batch) for each in failures] == [("shares", 1)] * 3

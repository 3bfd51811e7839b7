"""History first, then live: one log and one clock. Every row has its value as its place in the story."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Kafka, Lake, Pipeline, Then, drain, fork, log
from streaming.audit.laws import audit
from streaming.base.errors import SourceError
from streaming.operations.doctor import examine
from streaming.service.continuous import Continuous, Ending
from streaming.sources import Source, SourceBacklog
from tests.support.crash import Point, armed
from tests.support.feeds import land
from tests.support.instants import NOW, at
from tests.support.kafka import Broker
from tests.support.runs import run, tuples
from tests.support.topics import event, piped, values

_COMMIT = ("deltalake:DeltaTable", "create_write_transaction")
POINTS = {
    "the history is read, its end is not committed": (Point("", *_COMMIT, 3, "/events/log"), [0, 1]),
    "its end is committed, what follows is not begun": (Point("", *_COMMIT, 1, "/events/log", after=True), [0, 1]),
    "the first batch that follows is planned": (Point("", *_COMMIT, 1, "/events/log"), [0, 1]),
    "it is committed, Spark does not know": (Point("", *_COMMIT, 1, "/events/log", after=True), [0, 1, 2]),
}


class _Killed(Exception):
    """Nothing comes after it: what the process had in memory is dropped by the test."""


def following(live: Source) -> Pipeline:
    """Files that are history, then `live`; the clock is not behind the rows."""
    return piped(Then(Files("history"), live), clock=BoundedOutOfOrderness("0 seconds"))


def waiting(lake: Lake, pipeline: Pipeline) -> SourceBacklog:
    stream, head = pipeline.stream, log.head(lake, pipeline.stream)
    counted = stream.source.backlog(lake, lake.checkpoint(stream, log.QUERY))
    return counted({} if head is None else head.source)


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[str]:
    return [str(finding) for finding in audit(spark, lake, pipeline) if finding.broken]


def in_order(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> list[int]:
    rows = log.valid(log.read_log(spark, lake, pipeline.stream)).orderBy("_batch", "value")
    return [row["value"] for row in rows.collect()]


@pytest.mark.long
def test_history_comes_first_then_the_topic_and_late_history_is_told_of(
    spark: SparkSession, lake: Lake, kafka: Broker
) -> None:
    history = lake.path("history")
    # A topic that is older than the history's files, whose rows must wait for them all the same.
    kafka.create("follows")
    kafka.send("follows", [event(3, 30), event(4, 40)])
    land(history, [event(0, 0), event(1, 10)])
    land(history, [event(2, 20), "not JSON"])
    pipeline = following(Kafka(kafka.servers, "follows", rows_per_batch=1))
    assert str(waiting(lake, pipeline)) == "2 files wait"

    drained = run(spark, lake, pipeline)
    assert in_order(spark, lake, pipeline) == [0, 1, 2, 3, 4]
    assert drained.head is not None
    assert drained.head.after.watermark == at(40), "no partition of the history holds the clock"
    assert (waiting(lake, pipeline).items, waiting(lake, pipeline).unit) == (0, "rows")
    rows = log.valid(log.read_log(spark, lake, pipeline.stream))
    assert tuples(rows.selectExpr("value", "isnull(_origin.history)", "_origin.live.offset")) == [
        (0, False, None),
        (1, False, None),
        (2, False, None),
        (3, True, 0),
        (4, True, 1),
    ]

    kafka.send("follows", [event(5, 50)])
    land(history, [event(6, 60)])
    assert "1 files wait" in waiting(lake, pipeline).warning and history in waiting(lake, pipeline).warning
    # Of a topic the log knows the rows; of the history nothing more is asked.
    shutil.rmtree(lake.checkpoint(pipeline.stream, log.QUERY))
    shutil.rmtree(history)
    run(spark, lake, pipeline)
    assert in_order(spark, lake, pipeline) == [0, 1, 2, 3, 4, 5]
    assert waiting(lake, pipeline).warning == ""
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_killed_at_any_point_of_the_switch_every_row_comes_once_and_a_fork_goes_on(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    pipeline = following(Files("live"))
    Path(lake.path("live")).mkdir(parents=True)
    Path(lake.path("history")).mkdir()
    with pytest.raises(SourceError, match=r"found nothing in what it is to read first of .*history"):
        run(spark, lake, pipeline)
    for place, value in (("history", 0), ("history", 1), ("live", 2), ("live", 3)):
        land(lake.path(place), [event(value, value)])
    for name, (point, there) in POINTS.items():
        with pytest.raises(Exception, match="dies here"), armed(point, _die):
            drain(spark, lake, pipeline, now=lambda: NOW)
        assert values(spark, lake, pipeline) == there, name
    drain(spark, lake, pipeline, now=lambda: NOW)
    assert in_order(spark, lake, pipeline) == [0, 1, 2, 3]
    assert broken(spark, lake, pipeline) == []
    assert examine(lake, pipeline) == []

    land(lake.path("live"), [event(4, 4)])
    forked = Lake(str(tmp_path / "fork"))
    assert fork(lake, pipeline, None, forked).waiting == {"events": 1}
    run(spark, forked, pipeline)
    assert in_order(spark, forked, pipeline) == [0, 1, 2, 3, 4]


def _die() -> None:
    raise _Killed("the process dies here")


def test_a_running_stream_goes_on_from_its_history_to_what_is_live(spark: SparkSession, lake: Lake) -> None:
    pipeline = replace(following(Files("live")), trigger="100 milliseconds")
    land(lake.path("history"), [event(0, 0)])
    land(lake.path("live"), [event(1, 1)])
    happens: Iterator[Callable[[], object]] = iter([lambda: land(lake.path("live"), [event(2, 2)])])
    awaited = count(2)
    rows = next(awaited)

    def ending() -> Ending | None:
        """Another file lands once the first one of those that are live is in the log."""
        nonlocal rows
        if sum(batch.summary.rows for batch in log.read_batches(lake, pipeline.stream)) < rows:
            return None
        rows = next(awaited)
        following_event = next(happens, None)
        if following_event is None:
            return "drain"
        following_event()
        return None

    Continuous(spark, lake, pipeline, lambda: NOW, lambda measures: None, lambda status: None).run(ending, Event())
    assert in_order(spark, lake, pipeline) == [0, 1, 2]

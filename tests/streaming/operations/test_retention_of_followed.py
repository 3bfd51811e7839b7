"""Days of a log go though another stream follows it, once that has all of their rows; and what keeps days is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest
from pyspark.sql import SparkSession

from streaming import (
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Table,
    Then,
    Tumbling,
    Windowed,
    agg,
    drain,
)
from streaming.audit.laws import audit
from streaming.log.read import read_log, valid
from streaming.operations.retention import drop_days, planned_drop
from streaming.operations.savepoint import savepoint
from tests.support.feeds import land
from tests.support.instants import T0
from tests.support.retention_crash import tolerant
from tests.support.runs import tuples

LATER = T0 + timedelta(days=20)

readings = tolerant.streams[0]
hours = Windowed("hours", readings, Tumbling("1 hour"), {"readings": agg.count()})
upstream = Pipeline(readings, (hours,))
copied = replace(
    readings, name="copied", source=Table(readings), format=Json("id string not null, at timestamp"), retention=None
)
copies = Windowed("copies", copied, Tumbling("1 hour"), {"readings": agg.count()})
downstream = Pipeline(copied, (copies,))


def day(number: int) -> date:
    return (T0 + timedelta(days=number)).date()


def came(spark: SparkSession, lake: Lake, *batches: list[tuple[str, int]]) -> None:
    for batch in batches:
        rows = [{"id": name, "at": (T0 + timedelta(days=days, hours=1)).isoformat()} for name, days in batch]
        land(readings.source.location(lake), rows)
    drain(spark, lake, upstream, now=lambda: LATER)


def followed(spark: SparkSession, lake: Lake) -> None:
    drain(spark, lake, downstream, now=lambda: LATER)


def dropped(spark: SparkSession, lake: Lake) -> tuple[date | None, int, str]:
    (retention,) = drop_days(lambda: spark, lake, upstream, [downstream])
    return retention.before, retention.rows, retention.keeps


def broken(spark: SparkSession, lake: Lake, *pipelines: Pipeline) -> list[str]:
    return [str(finding) for of in pipelines for finding in audit(spark, lake, of) if not finding.holds]


@pytest.mark.long
def test_days_that_another_stream_has_taken_go_and_those_that_it_has_not_stay(spark: SparkSession, lake: Lake) -> None:
    came(spark, lake, [("a", 0), ("b", 3)], [("c", 5)], [("d", 6)])
    assert dropped(spark, lake) == (None, 0, "stream 'copied' has not followed it yet")
    followed(spark, lake)
    # Of the first batch one row goes and one stays.
    assert dropped(spark, lake) == (day(2), 1, "view 'hours' may still need rows from 2026-01-03 on")
    assert broken(spark, lake, downstream) == []

    came(spark, lake, [("e", 9)], [("f", 12)])
    assert dropped(spark, lake)[:2] == (day(2), 0)
    followed(spark, lake)
    assert dropped(spark, lake)[:2] == (day(6), 2)
    followed(spark, lake)
    assert tuples(valid(read_log(spark, lake, copied)), "id") == [(name,) for name in "abcdef"]
    assert broken(spark, lake, upstream, downstream) == []

    savepoint(lake, downstream, "kept", lambda: LATER)
    assert dropped(spark, lake)[1:] == (0, "savepoint 'kept' of 'copied' is of stream 'copied', which follows it")


@pytest.mark.long
def test_what_keeps_every_day_is_named(spark: SparkSession, lake: Lake) -> None:
    came(spark, lake, [("a", 0)], [("b", 5)], [("c", 9)])
    calls = replace(tolerant.streams[1], retention=None)
    land(calls.source.location(lake), [{"id": "a", "called": T0.isoformat()}])
    near = Joined("near", readings, calls, ("id",), ("0 seconds", "1 hour"))
    met = Pipeline(name="house", streams=(readings, calls), operators=(near,))
    own = Pipeline(readings, (Windowed("own", readings, SessionWindow(seconds_of="60"), {"n": agg.count()}),))
    for pipeline in (met, own):
        drain(spark, lake, pipeline, now=lambda: LATER)
    reasons = [planned_drop(None, lake, pipeline, readings).keeps for pipeline in (met, own)]
    assert reasons == [
        "join 'near' brings it together with stream 'calls', of which rows of any day may come: it keeps everything",
        "view 'own' has windows of which only the rows tell how far back they reach",
    ]
    then = replace(copied, source=Then(Files("landing/old"), Table(readings)))
    later = Pipeline(then, (replace(copies, of=then),))
    assert planned_drop(None, lake, upstream, readings, [later]).keeps == "stream 'copied' follows it after a history"

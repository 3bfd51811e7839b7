"""What fails behind a log pauses its operator, named by the batch from which it goes on, however often it is tried."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, Literal

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
)
from streaming.base.errors import QueryFailed
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.service.continuous import Continuous
from streaming.service.drain import drain_unpaused
from streaming.service.status import ProcessStatus
from streaming.service.watch import Watch
from streaming.views.first_results import read_first
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tidemark.testing import rows

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


def delivered(lake: Lake) -> list[dict[str, Any]]:
    """The lines of the files that were delivered, and of those that tell how far they are."""
    files = sorted(Path(lake.path("out")).rglob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def paused(spark: SparkSession, lake: Lake, of: Pipeline) -> str:
    """Why a drain pauses the view."""
    watch = Watch(lambda: NOW)
    with pytest.raises(QueryFailed, match=r"view 'shares' cannot be computed for some row: .*DIVIDE_BY_ZERO") as raised:
        drain(spark, lake, of, watch=watch, now=lambda: NOW)
    assert watch.failed is None
    return str(raised.value)


def paused_live(spark: SparkSession, lake: Lake, of: Pipeline) -> str:
    """Why a process that runs on and on pauses the view, and goes on itself."""
    statuses: list[ProcessStatus] = []
    wake = Event()

    def ending() -> Literal["stop"] | None:
        return "stop" if statuses and statuses[-1].queries["shares"].paused is not None else None

    continuous = Continuous(spark, lake, of, utc_now, lambda measures: None, statuses.append)
    continuous.run(ending, wake)
    assert continuous.watch.failed is None
    return str(statuses[-1].queries["shares"].paused)


def test_a_step_that_fails_pauses_its_operator_alone_and_is_told_by_its_first_batch(
    spark: SparkSession, lake: Lake
) -> None:
    """However many batches have come since; the other view and its delivery go on, whichever order they are in."""
    counts = Windowed("counts", parts, Tumbling("10 seconds"), {"rows": agg.count()})
    sent = Delivery("sent", counts, JsonLines("out"))
    both = replace(pipeline, operators=(shares, counts), deliveries=(sent,))
    land(lake, (0, 1))
    drain(spark, lake, both, now=lambda: NOW)
    land(lake, (1, 0))
    land(lake, (30, 1))
    assert paused(spark, lake, both).endswith("It was to follow batches 1 to 2 of the log of parts.")
    assert rows(read_first(spark, lake, counts), "rows") == [(2,)]
    assert [entry["rows"] for entry in delivered(lake) if "window_end" in entry] == [2]
    land(lake, (60, 1))
    done = drain_unpaused(spark, lake, both, now=lambda: NOW)
    assert done.paused.keys() == {"shares"}
    assert str(done.paused["shares"]).endswith("It was to follow batches 1 to 3 of the log of parts.")
    assert paused_live(spark, lake, both).endswith("It was to follow batches 1 to 3 of the log of parts.")
    assert rows(read_first(spark, lake, counts), "rows") == [(1,), (2,)]


def test_updates_that_fail_are_named_by_the_first_batch_that_has_none_yet(spark: SparkSession, lake: Lake) -> None:
    updated = replace(pipeline, operators=(replace(shares, late="update", allowed_lateness="1 hour"),))
    land(lake, (0, 1), (30, 1))
    drain(spark, lake, updated, now=lambda: NOW)
    land(lake, (1, 0))  # late, so that only updates count it
    reasons = [paused(spark, lake, updated)]
    for second in (60, 90):
        land(lake, (second, 1))
        reasons.append(paused_live(spark, lake, updated))
    assert all("bring its other tables from batch 1 on" in each for each in reasons), reasons


def test_open_windows_that_fail_are_named_by_the_first_batch_that_they_do_not_show(
    spark: SparkSession, lake: Lake
) -> None:
    """They hold up no log, in a drain either, which writes them after each batch."""
    shown = replace(pipeline, operators=(replace(shares, early="each batch"),))
    land(lake, (0, 1))
    drain(spark, lake, shown, now=lambda: NOW)
    land(lake, (1, 0))
    land(lake, (2, 1))
    reasons = [paused(spark, lake, shown)]
    assert len(read_batches(lake, parts)) == 3
    land(lake, (3, 1))
    reasons += [paused_live(spark, lake, shown), paused(spark, lake, shown)]
    assert all("bring its other tables from batch 1 on" in each for each in reasons), reasons

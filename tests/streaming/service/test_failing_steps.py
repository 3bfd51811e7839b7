"""What fails behind a log pauses its operator, named by the batch from which it goes on, however often it is tried."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
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
    top,
)
from streaming.base.errors import ChangedDeclaration, CorrectionsFailed, QueryFailed
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.service.continuous import Continuous
from streaming.service.drain import drain_unpaused
from streaming.service.status import ProcessStatus
from streaming.service.watch import Watch
from streaming.views.results import read_first
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tidemark.testing import correct, read, rows

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


@pytest.mark.long
def test_a_step_that_fails_pauses_its_operator_alone_and_is_told_by_its_first_batch(
    spark: SparkSession, lake: Lake
) -> None:
    """However many batches have come since; the other view and its delivery go on, whichever order they are in."""
    counts = Windowed("counts", parts, Tumbling("10 seconds"), {"rows": agg.count()})
    sent = Delivery("sent", counts, JsonLines("out"))
    best = top("best", parts, n=1, item="id", value="value")
    both = replace(pipeline, operators=(shares, counts, best), deliveries=(sent,))
    land(lake, (0, 1))
    drain(spark, lake, both, now=lambda: NOW)
    land(lake, (1, 0))
    land(lake, (30, 1))
    reason = paused(spark, lake, both)
    assert "`60 div value`" in reason and "It was to follow batches 1 to 2 of the log of parts." in reason
    assert re.search(r"The first such row has value=0, and came with batch 1 of parts \(.*0001\.json", reason), reason
    assert rows(read_first(spark, lake, counts), "rows") == [(2,)]
    assert [entry["rows"] for entry in delivered(lake) if "window_end" in entry] == [2]
    land(lake, (60, 1))
    done = drain_unpaused(spark, lake, both, now=lambda: NOW)
    assert done.paused.keys() == {"shares"}
    assert "It was to follow batches 1 to 3 of the log of parts." in str(done.paused["shares"])
    assert "It was to follow batches 1 to 3 of the log of parts." in paused_live(spark, lake, both)
    assert rows(read_first(spark, lake, counts), "rows") == [(1,), (2,)]
    assert read(spark, lake, best, "state", "_timers") == [({},)]


@pytest.mark.long
def test_late_rows_wait_for_the_declaration_of_a_view_that_cannot_compute_one_and_other_deliveries_go_on(
    spark: SparkSession, lake: Lake
) -> None:
    """Of a row for which `where` cannot be computed nobody knows yet that the view leaves it out."""
    shared = Windowed("shares", parts, Tumbling("10 seconds"), {"rows": agg.count()}, where="60 div value > 1")

    def sending(view: Windowed) -> Pipeline:
        late = Delivery("late", view, JsonLines("out"), "late")
        return replace(pipeline, operators=(view,), deliveries=(late, Delivery("all", parts, JsonLines("all"))))

    land(lake, (0, 1), (30, 1))
    drain(spark, lake, sending(shared), now=lambda: NOW)
    land(lake, (1, 0), (2, 1))
    paused = drain_unpaused(spark, lake, sending(shared), now=lambda: NOW).paused
    assert paused.keys() == {"late"}
    assert "of view 'shares', whose late rows delivery 'late' sends, cannot be computed" in str(paused["late"])
    sent = sorted(Path(lake.path("all")).rglob("*.json"))
    assert sum(len(each.read_text().splitlines()) for each in sent if each.parent.name != "_delivered") == 4
    mended = sending(replace(shared, where="try_divide(60, value) > 1"))
    rebuild(spark, lake, mended, mended.operators[0], now=lambda: NOW)
    assert not drain_unpaused(spark, lake, mended, now=lambda: NOW).paused
    assert [row["at"][17:19] for row in delivered(lake) if "at" in row] == ["02"]


@pytest.mark.long
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


@pytest.mark.long
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


def test_a_paused_operator_takes_a_corrected_declaration_until_it_has_published_something(
    spark: SparkSession, lake: Lake
) -> None:
    corrected = replace(shares, aggregates={"shares": agg.sum("60 / nullif(value, 0)")})
    first, second, third = (
        Pipeline(parts, (view,), deliveries=(Delivery("sent", view, JsonLines("out")),))
        for view in (
            shares,
            corrected,
            replace(shares, aggregates={"shares": agg.sum("60 div value"), "n": agg.count()}),
        )
    )
    land(lake, (0, 0))
    drain(spark, lake, first, now=lambda: NOW)
    land(lake, (1, 2), (30, 1))
    assert "tidemark rebuild" not in paused(spark, lake, first)
    drain(spark, lake, second, now=lambda: NOW)
    assert rows(read_first(spark, lake, corrected), "shares") == [(30.0,)]
    assert [entry["shares"] for entry in delivered(lake) if "window_end" in entry] == [30.0]
    # What somebody may have seen is never replaced without a word.
    with pytest.raises(ChangedDeclaration, match=r"aggregate 'n' was nothing and is count.*tidemark rebuild shares"):
        drain(spark, lake, third, now=lambda: NOW)


@pytest.mark.long
def test_a_day_that_cannot_be_corrected_keeps_no_other_day_from_it(spark: SparkSession, lake: Lake) -> None:
    day = 86_400
    # No row may be further ahead of its ingestion than `max_ahead` of the clock.
    now = partial(at, 4 * day)
    land(lake, *((each * day, 1) for each in range(4)))
    drain(spark, lake, pipeline, now=now)
    land(lake, (1, 2), (day + 1, 0), (2 * day + 1, 3))
    drain(spark, lake, pipeline, now=now)
    with pytest.raises(
        CorrectionsFailed,
        match=r"1 day of view 'shares' cannot be corrected, 2 others are: 2026-01-02: \[DIVIDE_BY_ZERO.*`60 div value`",
    ) as raised:
        correct(spark, lake, shares, now=now)
    first, second, third = (at(each * day).date() for each in range(3))
    assert raised.value.corrected == {first: 1, third: 1} and raised.value.failed.keys() == {second}
    assert read(spark, lake, shares, "corrections", "shares") == [(80,), (90,)]
    assert [pending.day for pending in runtime_of(shares, lake).plan(spark)] == [second]

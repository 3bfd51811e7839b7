"""Deliveries of a pipeline that runs on and on."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline
from streaming.base.errors import SinkError
from streaming.base.intervals import utc_now
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.service.alerts import evaluate
from streaming.service.continuous import Continuous, Ending
from streaming.service.delivering import _wait
from streaming.service.overview import Overview
from streaming.service.status import ProcessStatus
from streaming.sinks.files import JsonLines
from streaming.sinks.rest import Rest
from tests.support.delivering import ingested, pipeline, reading, readings
from tests.support.feeds import land_all
from tests.support.http_server import http_server
from tests.support.instants import NOW, at


def written(lake: Lake) -> list[int]:
    paths = sorted(path for path in Path(lake.root, "out").rglob("*.json") if path.parent.name != "_delivered")
    return [json.loads(line)["value"] for path in paths for line in path.read_text().splitlines()]


def run_until(
    spark: SparkSession,
    lake: Lake,
    of: Pipeline,
    ending: Callable[[], Ending | None],
    statuses: list[ProcessStatus],
) -> None:
    Continuous(spark, lake, of, utc_now, lambda measures: None, statuses.append).run(ending, Event())


def test_a_target_that_is_away_waits_and_tells_while_others_get_theirs_and_goes_on_by_itself(
    spark: SparkSession, lake: Lake
) -> None:
    with http_server() as server:
        server.answer = lambda posted: 503
        of = pipeline(
            Delivery("post", readings, Rest(server.url, flush=None), select=("value",)),
            Delivery("files", readings, JsonLines("out"), select=("value",)),
        )
        statuses: list[ProcessStatus] = []
        land_all(lake, readings, [reading("a", 1, 1)], [reading("a", 2, 2)])

        def ending() -> Ending | None:
            waits = bool(statuses) and statuses[-1].queries["post"].waiting is not None
            if waits and len(written(lake)) == 2:
                server.answer = lambda posted: 200
            return "drain" if len(server.rows()) == 2 else None

        run_until(spark, lake, of, ending, statuses)

    told = next(status for status in statuses if status.queries["post"].waiting is not None)
    assert "answers 503 Service Unavailable" in (told.queries["post"].waiting or "")
    assert told.queries["files"].waiting is None
    assert statuses[-1].queries["post"].waiting is None
    assert [row["value"] for row in server.rows()] == written(lake) == [1, 2]
    assert {status.phase for status in statuses} >= {"running", "draining"}

    since = told.queries["post"].waiting_since
    assert since is not None
    overview = Overview(of, "running", since, "", None, 0, (), told)
    for minutes, raised in ((4, []), (6, ["stream_deliveries_arrive"])):
        later = since + minutes * (at(60) - at(0))
        assert [alert.name for alert in evaluate(overview, of.limits, later) if not alert.passed] == raised


def test_a_delivery_that_must_be_told_what_is_meant_pauses_alone_and_goes_on_once_it_is(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.service.delivering._WHILE_PAUSED", 0.2)
    files = Delivery("files", readings, JsonLines("out", by="none"), select=("value",))
    ingested(spark, lake, [reading("a", 1, 1)])
    before: list[ProcessStatus] = []
    run_until(spark, lake, pipeline(files), lambda: "stop" if written(lake) else None, before)

    statuses: list[ProcessStatus] = []
    of = pipeline(replace(files, where="value > 1"))
    land_all(lake, readings, [reading("a", 2, 0), reading("a", 3, 3)])
    told = False

    def ending() -> Ending | None:
        nonlocal told
        paused = bool(statuses) and statuses[-1].queries["files"].paused
        if paused and statuses[-1].newest_batch == 1 and not told:
            told = True
            assert "where was nothing and is value > 1" in str(paused)
            DeliveryRuntime(of.deliveries[0], lake, lambda: NOW).begin_anew(again=False)
        return "stop" if written(lake) == [1, 3] else None

    run_until(spark, lake, of, ending, statuses)
    assert told


@pytest.mark.parametrize(("asked", "least"), [(None, 0.5), (7.0, 7.0)])
def test_the_next_attempt_is_later_each_time_and_not_before_the_target_asks_for_it(
    asked: float | None, least: float
) -> None:
    class Attempt:
        def __init__(self, number: int) -> None:
            self.attempt_number = number
            self.outcome = self

        def exception(self) -> SinkError:
            return SinkError("away", asked)

    waits = [_wait(Attempt(number)) for number in range(1, 12)]  # type: ignore[arg-type]
    assert waits[0] >= least
    assert max(waits) <= 61.0
    assert waits[-1] >= 60.0

"""`tidemark plan` and `tidemark apply`: what a pull request asks in CI, and what brings it about."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines import flights as demo
from platform_assets.demo.reports import on_time_performance
from streaming.declare import Selected
from streaming.formats import Json
from streaming.lake.lake import Lake
from streaming.operations import rebuild
from streaming.service.drain import drain
from streaming.windows.window import Tumbling
from tests.platform_assets.conftest import Tidemark, Typed
from tests.support.departures import CLOSING, FIRST
from tests.support.feeds import land_all

NOTHING, FAILED, PENDING = 0, 1, 2
SCHEMA = ", ".join(f"{column.name} {column.type}" for column in demo.flights.format.columns)


def test_the_exit_code_tells_ci_what_is_pending_and_what_was_typed_wrongly(typed: Typed) -> None:
    code, out, _ = typed("plan flights")
    assert code == PENDING and "+ view departures_by_origin: new, next run" in out
    code, out, _ = typed("plan flights --json")
    document = json.loads(out)
    assert code == PENDING and document["pending"] == document["pipelines"][0]["pending"] == 2
    assert [part["state"] for part in document["pipelines"][0]["parts"]] == ["new", "new"]
    assert typed("plan nonesuch")[0] == FAILED
    assert typed("plan --jsno")[0] == FAILED


def test_a_changed_view_is_planned_applied_and_then_as_declared(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    land_all(lake, demo.flights, FIRST, CLOSING)
    drain(spark, lake, demo.pipeline, end_of_input=True)
    code, text = tidemark("plan")
    assert code == NOTHING and text == "flights: nothing to do"

    halves = replace(demo.departures_by_origin, window=Tumbling("30 minutes"))
    monkeypatch.setattr(demo, "pipeline", replace(demo.pipeline, operators=(halves,)))
    code, text = tidemark("plan")
    assert (
        code == PENDING
        and "~ view departures_by_origin: changed, to be built anew window Tumbling: size 1 hour" in text
    )
    assert "nobody has measured here" in text and "Next: tidemark apply flights" in text
    assert (
        "of 3 keys, origin=EWR, origin=JFK, origin=LGA; 2 windows, 2013-01-01 10:00:00 to 2013-01-04 11:00:00" in text
    )

    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    code, text = tidemark("apply flights")
    assert code == FAILED and "Apply this to" in text and "Aborted" in text, "nobody has said yes"
    assert tidemark("plan")[0] == PENDING
    code, text = tidemark("plan flights --diff 1 --limit 1")
    assert code == PENDING and "departures_by_origin, from 2013-01-04 on: 0 equal, 0 different, 1 added, 1 gone" in text
    document = json.loads(tidemark("plan flights --diff-keys origin=LGA --json")[1])
    (part,) = (part for part in document["pipelines"][0]["parts"] if part["replay"])
    assert (part["keys"]["number"], part["keys"]["few"][0], part["keys"]["times"]) == (3, {"origin": "EWR"}, 2)
    assert part["replay"]["equal"] == 0 and {row["origin"] for row in part["replay"]["rows"]} == {"LGA"}
    code, text = tidemark("apply flights --yes")
    assert code == NOTHING and "departures_by_origin: " in text and "built from the log." in text
    assert tidemark("plan")[0] == NOTHING
    code, text = tidemark("apply flights --yes")
    assert code == NOTHING and "There is nothing to apply." in text

    # A type that the log cannot take is nothing that apply could bring about.
    texts = replace(demo.flights, format=Json(SCHEMA.replace("air_time double", "air_time string")))
    monkeypatch.setattr(
        demo, "pipeline", replace(demo.pipeline, streams=(texts,), operators=(replace(halves, of=texts),))
    )
    code, text = tidemark("apply flights --yes")
    assert code == PENDING and "stream flights: changed, refused" in text and "Nothing of this is done by apply" in text


@pytest.mark.long
def test_reports_that_an_apply_was_killed_before_are_published_by_the_next_one(
    spark: SparkSession, lake: Lake, tidemark: Tidemark
) -> None:
    land_all(lake, demo.flights, FIRST, CLOSING)
    drain(spark, lake, demo.pipeline, end_of_input=True)
    assert on_time_performance.report.pipeline == demo.pipeline
    assert tidemark("report on_time_performance")[0] == 0
    rebuild(spark, lake, demo.pipeline, demo.departures_by_origin)
    code, text = tidemark("plan flights")
    assert code == PENDING and "~ report on_time_performance: of results that were built anew since" in text
    document = json.loads(tidemark("plan flights --json")[1])
    assert (document["pending"], document["pipelines"][0]["outdated"]) == (0, ["on_time_performance"])
    code, text = tidemark("apply flights --yes")
    assert code == NOTHING and "report on_time_performance is published again" in text
    code, text = tidemark("apply flights --yes")
    assert code == NOTHING and "There is nothing to apply." in text


@pytest.mark.long
def test_reports_are_published_again_though_an_operator_cannot_be_built(
    spark: SparkSession, lake: Lake, tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch
) -> None:
    def declared(least: str, where: str) -> None:
        delayed = Selected("delayed", demo.flights, select=("origin",), where=least)
        flown = Selected("flown", demo.flights, select=("origin",), where=where)
        pipeline = replace(demo.pipeline, operators=(demo.departures_by_origin, delayed, flown))
        monkeypatch.setattr(demo, "pipeline", pipeline)
        monkeypatch.setattr(on_time_performance, "report", replace(report, pipeline=pipeline))

    report = on_time_performance.report
    declared("flight > 1", "flight > 0")
    land_all(lake, demo.flights, FIRST, CLOSING)
    drain(spark, lake, demo.pipeline, end_of_input=True)
    assert tidemark("report on_time_performance")[0] == NOTHING
    declared("flight > 2", "1 / (flight - flight) > 0")
    code, text = tidemark("apply flights --yes")
    assert code == FAILED and "delayed: " in text and "DIVIDE_BY_ZERO" in text
    assert "report on_time_performance is published again" in text
    assert [
        part["name"]
        for part in json.loads(tidemark("plan flights --json")[1])["pipelines"][0]["parts"]
        if part["action"] == "rebuild"
    ] == ["flown"]

"""`tidemark report --as-of` of what was published starts no Spark, and `tidemark why` explains the same rows."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import context
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.reports.publish import judge_and_publish
from platform_assets.reports.registry import find_report
from streaming.lake import Lake
from tests.platform_assets.conftest import Typed
from tests.support.departures import CLOSING, FIRST, departure
from tests.support.runs import run

SECOND_CLOSING = [departure("JFK", "04T10:30"), departure("LGA", "04T10:30"), departure("EWR", "06T10:00")]


@pytest.mark.long
def test_what_was_published_of_a_batch_is_printed_without_spark(
    spark: SparkSession, lake: Lake, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, lake, pipeline, FIRST, CLOSING)
    by_spark = json.loads(typed("report on_time_performance --as-of 1 --json")[1])
    assert by_spark["run_id"] is None
    published = judge_and_publish(spark, lake, find_report("on_time_performance"), "run-1")

    monkeypatch.setattr(context, "start_quietly", lambda **_: pytest.fail("Spark was started"))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    code, out, err = typed("report on_time_performance --as-of 1 --json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["run_id"], told["as_of"]) == ("run-1", {"flights": 1})
    assert {name: len(rows) for name, rows in told["sections"].items()} == {
        name: table.num_rows for name, table in published.tables.items()
    }
    assert told["sections"] == by_spark["sections"]
    assert "run-1 has published" in typed("report on_time_performance --as-of 1")[1]


@pytest.mark.long
def test_why_explains_what_was_first_published_and_what_was_as_of_a_batch(
    spark: SparkSession, lake: Lake, typed: Typed
) -> None:
    run(spark, lake, pipeline, FIRST, CLOSING)
    report = find_report("on_time_performance")
    judge_and_publish(spark, lake, report, "run-1")
    run(spark, lake, pipeline, SECOND_CLOSING)
    judge_and_publish(spark, lake, report, "run-2")
    key = "day=2013-01-01 origin=JFK"
    for options, of_run in (("", "run-2"), ("--first", "run-1"), ("--as-of 1", "run-1"), ("--as-of 2", "run-2")):
        code, out, err = typed(f"why on_time_performance {key} {options} --json")
        assert code == 0, err
        told = json.loads(out)
        assert (told["versions"]["run"], told["agrees"]) == (of_run, True)
        assert [(row["day"], row["origin"]) for row in told["published"]] == [("2013-01-01", "JFK")]
        assert {row["origin"] for each in told["upstream"] for row in each["published"]} == {"JFK"}
    code, out, err = typed(f"why on_time_performance {key} --first")
    assert code == 0, err
    assert "first: " in out and "recomputed from exactly these rows, it is the same" in out

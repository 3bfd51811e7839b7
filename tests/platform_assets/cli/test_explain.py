"""`tidemark explain` of a stream says of each part where it is computed, and why there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from platform_assets.cli import context
from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.texts.ingest import part_row, summary
from streaming import agg
from streaming.declare import Pipeline, Rule
from streaming.lake import Lake
from streaming.log import Place
from streaming.operators import analyse, analysis_of, places_in
from tests.platform_assets.conftest import Tidemark, Typed
from tests.support.written_lake import write_flights


def test_a_stream_whose_parts_are_all_proven_is_ingested_by_tasks(tidemark: Tidemark) -> None:
    code, text = tidemark("explain flights")
    assert code == 0
    assert "flights: ingest of flights" in text
    assert "Tasks ingest flights" in text
    assert "runs in Spark" not in text
    assert "tidemark bench flights" in text


def test_the_careful_way_is_told_whatever_tasks_could(tidemark: Tidemark, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", "careful")
    code, text = tidemark("explain flights")
    assert code == 0
    assert "TIDEMARK_INGEST=careful: Spark ingests all of flights" in text


def test_neither_a_view_nor_a_stream_is_refused_with_the_views(tidemark: Tidemark) -> None:
    code, text = tidemark("explain nonesuch")
    assert code == 1
    assert "there is no view 'nonesuch'" in text


def test_each_part_says_who_computes_it_and_when() -> None:
    why = "the function xxhash64 runs in Spark"
    rule = Place("rule", "odd", "xxhash64(id) % 2 = 1", why, after=True)
    assert part_row(rule) == ("rule", "odd: xxhash64(id) % 2 = 1", "Spark, over what tasks have written", why)
    assert part_row(Place("derived column", "n", "hash(id)", why))[2] == "Spark"
    assert part_row(Place("late", "by_minute"))[:3] == ("late rows", "by_minute", "tasks")
    assert "two to three times" in summary("s", (replace(rule, after=False),), "fast")
    assert "odd is judged by Spark afterwards" in summary("s", (rule,), "fast")


def test_what_a_run_has_analysed_is_explained_without_spark(
    spark: SparkSession, lake: Lake, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_flights(lake)
    names = ("flights", "departures_by_origin")
    by_spark = [typed(f"explain {name}")[1] for name in names]
    analyse(spark, lake, pipeline)
    monkeypatch.setattr(context, "start_quietly", lambda **_: pytest.fail("Spark was started"))
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    assert [typed(f"explain {name}")[1] for name in names] == by_spark
    assert all(by_spark)


def test_what_was_analysed_of_another_declaration_is_not_told(spark: SparkSession, lake: Lake) -> None:
    analyse(spark, lake, pipeline)
    (view,) = pipeline.views
    other = replace(view, aggregates={"flights": agg.count()})
    strict = replace(pipeline.stream, rules=(*pipeline.stream.rules, Rule("early", "dep_delay < 9000")))
    assert analysis_of(lake, pipeline, view) == {"parts": True, "folds": True, "by_spark": ""}
    assert analysis_of(lake, Pipeline(pipeline.stream, (other,)), other) is None
    assert places_in(lake, pipeline, pipeline.stream)
    assert places_in(lake, Pipeline(strict, (replace(view, of=strict),)), strict) is None

"""Two streams in one function, and pinned rules, on Spark: commits, audits, kills and replays."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.keyed import operator
from streaming.lake.lake import Lake
from streaming.log.batches import read_batches
from streaming.log.pins import Pin
from streaming.log.read import read_log, rejected
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from tests.streaming.keyed.connected import drawn, forest, forest_fires, jumps_by_rule, smoke, thresholds
from tests.streaming.keyed.functions import payloads
from tests.streaming.keyed.test_connected import R1
from tests.streaming.keyed.test_steps import follow, tables
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tidemark.testing import land_all

by_rule = replace(jumps_by_rule, of=forest)
fires = replace(forest_fires, of=(smoke, forest))
PIPELINE = Pipeline(name="forest", streams=(forest, smoke, thresholds), operators=(by_rule, fires))

READINGS = ("s1@1=20, s1@2=21.25, s2@3=20, s2@4=20.75, s3@5=20, s3@6=30, s9@6=130", "s3@7=33, s3@8=38, s9@9=133")


@pytest.fixture(scope="module")
def ruled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in which thresholds came with each of two batches of readings, and smoke before the first."""
    lake = Lake(str(tmp_path_factory.mktemp("ruled") / "lake"))
    land_all(lake, smoke, drawn("level=LOW @0, level=HIGH @4"))
    land_all(lake, thresholds, [*R1[0]["thresholds"], *drawn("id=s1 threshold=-1 number=9")])
    run(spark, lake, PIPELINE, payloads(READINGS[0]))
    land_all(lake, smoke, drawn("level=LOW @8"))
    land_all(lake, thresholds, R1[1]["thresholds"])
    run(spark, lake, PIPELINE, payloads(READINGS[1]), end_of_input=True)
    return lake


def copied(lake: Lake, place: Path) -> Lake:
    shutil.copytree(lake.root, place)
    # Files that were taken in elsewhere would be new ones here.
    for landed in place.glob("landing/*/*"):
        landed.unlink()
    return Lake(str(place))


def results(spark: SparkSession, lake: Lake, of: Operator) -> list[tuple[Any, ...]]:
    return tuples(runtime_of(of, lake).readable["current"](spark).drop("_written_at", "_day"))


GOLDEN = [("s1", at(2), 21.25, 1.25, 4), ("s3", at(8), 38.0, 5.0, 6)]


def test_a_commit_says_how_far_the_rules_were_and_its_rows_see_those(spark: SparkSession, ruled: Lake) -> None:
    batches = sorted(read_batches(ruled, forest), key=lambda batch: batch.number)
    assert [batch.pins for batch in batches[:2]] == [{"thresholds": Pin(0, 0)}, {"thresholds": Pin(0, 1)}]
    assert results(spark, ruled, by_rule) == GOLDEN
    negative = rejected(read_log(spark, ruled, thresholds)).collect()
    assert [row["_rejected"] for row in negative] == [["not_negative: not (threshold >= 0)"]]


def test_two_streams_in_one_function_are_followed_in_one_commit_that_says_how_far_both_are(
    spark: SparkSession, ruled: Lake
) -> None:
    assert results(spark, ruled, fires) == [("forest", at(6), "s9", 130.0)]
    heads = {stream.name: read_batches(ruled, stream)[0].number for stream in (smoke, forest)}
    text = runtime_of(fires, ruled).explain(spark)["position"]
    assert text.startswith(", ".join(f"{number} of {name}" for name, number in heads.items()).join(("batch ", " of")))


def test_a_rebuild_with_newer_rules_present_gives_what_was_published(
    spark: SparkSession, ruled: Lake, tmp_path: Path
) -> None:
    lake = copied(ruled, tmp_path / "lake")
    before = {each.name: tables(lake, each) for each in (by_rule, fires)}
    land_all(lake, thresholds, drawn("id=s1 threshold=0.1 number=20, id=s2 threshold=0.1 number=21"))
    run(spark, lake, PIPELINE)
    for each in (by_rule, fires):
        rebuild(spark, lake, PIPELINE, each, now=lambda: NOW)
        assert tables(lake, each) == before[each.name]
    findings = list(audit(spark, lake, PIPELINE))
    assert [entry.broken for entry in findings if entry.law == "cuts"] == [0] * 4
    # The new generation goes on, and sees them.
    run(spark, lake, PIPELINE, payloads("s1@20=20, s1@21=20.5"))
    assert results(spark, lake, by_rule) == sorted(
        [*GOLDEN, ("s1", at(20), 20.0, 1.25, 20), ("s1", at(21), 20.5, 0.5, 20)]
    )


def test_steps_over_two_logs_that_are_killed_between_any_two_commits_leave_the_tables_of_one_that_was_not(
    spark: SparkSession, ruled: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = tables(ruled, fires)
    assert undisturbed[""] and undisturbed["state"]
    for kill in (2, 4, 5):
        lake = Lake(str(tmp_path / str(kill)))
        for stream in (smoke, forest):
            shutil.copytree(ruled.path(stream.name, "log"), lake.path(stream.name, "log"))
        with monkeypatch.context() as dying:
            dying.setattr(operator, "_ROWS_PER_CORE", 1)
            killed_at(kill, dying)
            with pytest.raises(Killed):
                follow(spark, lake, fires)
        follow(spark, lake, fires)
        assert tables(lake, fires) == undisturbed, kill

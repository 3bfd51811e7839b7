"""Two streams in one function, and pinned rules, on Spark: commits, audits, kills and replays."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.declare.selected import Selected
from streaming.lake.lake import Lake
from streaming.log.batches import Pin, read_batches
from streaming.log.read import read_log, rejected
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operators import runtime as runtimes
from streaming.operators.progress import Progress
from streaming.operators.runtime import runtime_of
from tests.streaming.keyed.connected import (
    alert_rules,
    commands,
    drawn,
    forest,
    forest_fires,
    jumps_by_rule,
    jumps_since_reset,
    matched,
    models,
    scored,
    smoke,
    thresholds,
)
from tests.streaming.keyed.functions import payloads
from tests.streaming.keyed.test_connected import R1
from tests.streaming.keyed.test_steps import follow, tables
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.running import ingest
from tests.support.runs import run, tuples
from tidemark.testing import land_all

by_rule = replace(jumps_by_rule, of=forest)
fires = replace(forest_fires, of=(smoke, forest))
PIPELINE = Pipeline(
    name="forest", streams=(forest, smoke, thresholds, alert_rules), operators=(by_rule, fires, matched)
)

READINGS = (
    "s1@1=20, s1@2=21.25, s2@3=20, s2@4=20.75, s3@5=20, s3@6=30, s9@6=130, e@6.1=31, e@6.2=30",
    "e@6.9=30, s3@7=33, s3@8=38, s9@9=133",
)


CONDITIONS = (
    ("r1", 1, "id = 'e' and temperature > 30", True),
    ("off", 1, "id = 'e'", False),
    ("impossible", 1, "cast(id as int) / 0 > 1", True),
    ("unread", 1, "temperature > (", True),
    ("unknown", 1, "humidity > 1", True),
    ("of many", 1, "max(temperature) > 1", True),
    ("number", 1, "temperature + 1", True),
    ("chance", 1, "rand() > 0.5", True),
    ("today", 1, "event_time > 'today'", True),
    ("nested", 1, f"{'(' * 50}temperature{')' * 50} > 1", True),
    ("unfinished", 1, "[ percentile( date_trunc(", True),
    ("no number", 1, "unnest( interval null ? 1bd if(", True),
    ("long", 1, f"temperature{' + 1' * 4_000} > 1", True),
    # These are read, and raise for rows, of which they are not true.
    ("split", 1, "interval '1' hour / (temperature - 20) > interval '2' hour", True),
    ("far", 1, "event_time + interval '1' day * (temperature * 1e17) > event_time", True),
    ("escaped", 1, r"id like 's\\'", True),
    ("wide", 1, " or ".join(f"temperature = {number}" for number in range(1_000, 1_300)), True),
    ("deep", 1, f"temperature{' + 1' * 380} < 1", True),
)


UNPARSED = ("nested", "unfinished", "no number", "long")


def conditions(*rules: tuple[str, int, str, bool]) -> list[dict[str, Any]]:
    names = ("rule_id", "version", "condition", "active")
    return [{**dict(zip(names, rule, strict=True)), "at": at(0).isoformat()} for rule in rules]


@pytest.fixture(scope="module")
def ruled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in which thresholds came with each of two batches of readings, and smoke before the first."""
    lake = Lake(str(tmp_path_factory.mktemp("ruled") / "lake"))
    land_all(lake, smoke, drawn("level=LOW @0, level=HIGH @4"))
    land_all(lake, thresholds, [*R1[0]["thresholds"], *drawn("id=s1 threshold=-1 number=9")])
    land_all(lake, alert_rules, conditions(*CONDITIONS))
    run(spark, lake, PIPELINE, payloads(READINGS[0]))
    land_all(lake, smoke, drawn("level=LOW @8"))
    land_all(lake, thresholds, R1[1]["thresholds"])
    # Version 3 came before version 2, and is the newer one all the same.
    land_all(lake, alert_rules, conditions(("r1", 3, "id = 'e' and temperature > 29", True)))
    land_all(lake, alert_rules, conditions(("r1", 2, "id = 'e' and temperature > 50", True)))
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


@pytest.mark.long
def test_a_commit_says_how_far_the_rules_were_and_its_rows_see_those(spark: SparkSession, ruled: Lake) -> None:
    batches = sorted(read_batches(ruled, forest), key=lambda batch: batch.number)
    pins = [batch.pins["thresholds"] for batch in batches[:2]]
    assert pins == [Pin(0, 0), Pin(0, 1)]
    assert results(spark, ruled, by_rule) == GOLDEN
    negative = rejected(read_log(spark, ruled, thresholds)).collect()
    assert [row["_rejected"] for row in negative] == [["not_negative: not (threshold >= 0)"]]


@pytest.mark.long
def test_r2_every_event_is_asked_every_rule_and_each_match_names_the_version(spark: SparkSession, ruled: Lake) -> None:
    assert results(spark, ruled, matched) == [("e", at(6.1), "r1", 1, 31.0), ("e", at(6.9), "r1", 3, 30.0)]


def test_r2_an_invalid_condition_is_a_rejected_row_of_its_stream_and_stops_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    land_all(lake, alert_rules, conditions(*CONDITIONS))
    ingest(spark, lake, Pipeline(alert_rules, (Selected("rules", alert_rules),)))
    rejections = {row["rule_id"]: row["_rejected"] for row in rejected(read_log(spark, lake, alert_rules)).collect()}
    assert rejections.keys() == {"unread", "unknown", "of many", "number", "chance", "today", *UNPARSED}
    assert all(len(reasons) == 1 and reasons[0].startswith("readable: ") for reasons in rejections.values())
    assert "it is nested too deeply. Write it as Spark SQL." in rejections["nested"][0]
    assert "is nested more than 400 levels deep" in rejections["long"][0]
    assert "unknown column 'humidity'" in rejections["unknown"][0]
    assert "calls rand, which follows from no row" in rejections["chance"][0]
    assert "reads the clock by 'today', which follows from no row" in rejections["today"][0]


@pytest.mark.long
def test_two_streams_in_one_function_are_followed_in_one_commit_that_says_how_far_both_are(
    spark: SparkSession, ruled: Lake
) -> None:
    assert results(spark, ruled, fires) == [("forest", at(6), "s9", 130.0)]
    heads = {stream.name: read_batches(ruled, stream)[0].number for stream in (smoke, forest)}
    text = runtime_of(fires, ruled).explain(spark)["position"]
    assert text.startswith(", ".join(f"batch {number} of {number} of {name}" for name, number in heads.items()))


@pytest.mark.long
def test_a_rebuild_with_newer_rules_present_gives_what_was_published(
    spark: SparkSession, ruled: Lake, tmp_path: Path
) -> None:
    lake = copied(ruled, tmp_path / "lake")
    before = {each.name: tables(lake, each) for each in (by_rule, matched)}
    land_all(lake, alert_rules, conditions(("r1", 9, "true", True)))
    land_all(lake, thresholds, drawn("id=s1 threshold=0.1 number=20, id=s2 threshold=0.1 number=21"))
    run(spark, lake, PIPELINE)
    for each in (by_rule, matched):
        rebuild(spark, lake, PIPELINE, each, now=lambda: NOW)
        assert tables(lake, each) == before[each.name]
    findings = list(audit(spark, lake, PIPELINE))
    broken = {entry.subject: entry.broken for entry in findings if entry.law == "cuts"}
    assert broken.keys() >= {"jumps_by_rule", "forest_fires", "matched"} and not any(broken.values())
    # The new generation goes on, and sees them.
    run(spark, lake, PIPELINE, payloads("s1@20=20, s1@21=20.5"))
    assert results(spark, lake, by_rule) == sorted(
        [*GOLDEN, ("s1", at(20), 20.0, 1.25, 20), ("s1", at(21), 20.5, 0.5, 20)]
    )


@pytest.mark.long
def test_a_function_that_is_added_later_sees_the_first_rules_in_all_that_came_before(
    spark: SparkSession, ruled: Lake, tmp_path: Path
) -> None:
    lake, added = copied(ruled, tmp_path / "lake"), replace(scored, of=forest)
    resets = replace(jumps_since_reset, of=forest)
    pipeline = Pipeline(name="forest", streams=(forest, models, commands), operators=(added, resets))
    land_all(lake, models, drawn("model=heat slope=2.0 version=1"))
    Path(commands.source.location(lake)).mkdir(parents=True)
    run(spark, lake, pipeline)
    # Nothing came but the model, so a heartbeat says how far it was.
    newest = read_batches(lake, forest)[0]
    assert (newest.cause, newest.pins["models"]) == ("heartbeat", Pin(0, 0))
    assert newest.pins["thresholds"] == Pin(0, 1), "what was pinned before is carried on"
    before = results(spark, lake, added)
    assert len(before) == 13 and {row[3] for row in before} == {1}
    land_all(lake, models, drawn("model=heat slope=3.0 version=2"))
    run(spark, lake, pipeline, payloads("s1@30=1"))
    rebuild(spark, lake, pipeline, added, now=lambda: NOW)
    assert results(spark, lake, added) == sorted([*before, ("s1", at(30), 3.0, 2)])
    # Nobody has ever given a command, and nothing waits for one.
    assert read_batches(lake, commands) == []
    assert maintain(lake, pipeline, now=lambda: NOW)
    assert ("s3", at(8), 38.0, 33.0) in results(spark, lake, resets)
    broken = {entry.subject: entry.broken for entry in audit(spark, lake, pipeline) if entry.law == "cuts"}
    assert broken.keys() >= {"scored", "jumps_since_reset"} and not any(broken.values())


def test_days_stay_whose_rows_wait_in_one_log_for_the_clock_of_the_other(ruled: Lake, tmp_path: Path) -> None:
    far = {each.name: date(2030, 1, 1) for each in fires.streams}
    joint = Progress.now(ruled, fires).watermark
    assert joint is not None
    assert runtime_of(fires, ruled).needs_since(None, forest, far) == joint.date()
    assert runtime_of(fires, ruled).needs_since(None, forest, {**far, forest.name: date(1970, 1, 1)}) == date(
        1970, 1, 1
    )
    nothing = runtime_of(fires, Lake(str(tmp_path)))
    assert nothing.needs_since(None, forest, far) is None
    assert nothing.why_all(forest) == "waits for a row of another stream of it"


@pytest.mark.long
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
            dying.setattr(runtimes, "ROWS_PER_CORE", 1)
            killed_at(kill, dying)
            with pytest.raises(Killed):
                follow(spark, lake, fires)
        follow(spark, lake, fires)
        assert tables(lake, fires) == undisturbed, kill

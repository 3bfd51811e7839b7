"""Golden tests of keyed applications that need a chain, a correction or a repeated step, on Spark."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming.declare.pipeline import Pipeline
from streaming.examples import bubble_game, hot_sensors, word_counts
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW, at, ms
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tidemark import testing

TEXTS = ("To be, or not to be", "#Flink and #flink #etl")


@pytest.fixture(scope="module")
def counted(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake in which texts were split into tokens, and these counted."""
    lake = Lake(str(tmp_path_factory.mktemp("counted") / "lake"))
    run(spark, lake, word_counts.splitting, TEXTS)
    run(spark, lake, word_counts.pipeline)
    return lake


def counts(spark: SparkSession, lake: Lake, keyed: Any) -> list[tuple[Any, ...]]:
    return tuples(runtime_of(keyed, lake).readable["current"](spark), "token", "seen")


def test_k4_word_count_per_event(spark: SparkSession, counted: Lake) -> None:
    found = counts(spark, counted, word_counts.word_counts)
    assert [row for row in found if row[0] in ("to", "be", "or", "not")] == [
        ("be", 1),
        ("be", 2),
        ("not", 1),
        ("or", 1),
        ("to", 1),
        ("to", 2),
    ]
    assert not [row for row in found if not row[0].strip()], "empty tokens are none"


def test_k5_hashtag_count_without_regard_to_case(spark: SparkSession, counted: Lake) -> None:
    state = tuples(runtime_of(word_counts.tag_counts, counted).readable["state"](spark), "token", "seen")
    assert state == [("etl", 1), ("flink", 2)]


def test_k15_a_team_goes_up_a_level_once_its_late_player_is_counted(spark: SparkSession, lake: Lake) -> None:
    def pops(*drawn: tuple[str, float, int]) -> list[dict[str, Any]]:
        return [
            {"player": player, "team": "blue", "popped_at": at(seconds).isoformat(), "bubbles": bubbles}
            for player, seconds, bubbles in drawn
        ]

    run(spark, lake, bubble_game.pipeline, pops(("p1", 10, 500), ("p2", 20, 300), ("p1", 61, 1)))
    run(spark, lake, bubble_game.pipeline, pops(("p2", 50, 200)))
    columns = ("team", "window_end", "level_up", "missing")
    assert testing.read(spark, lake, bubble_game.levels, "first", *columns) == [("blue", at(60), False, ["p2"])]
    assert testing.read(spark, lake, bubble_game.levels, "late", "player", "bubbles") == [("p2", 200)]
    testing.correct(spark, lake, bubble_game.levels, now=lambda: NOW)
    assert testing.read(spark, lake, bubble_game.levels, "current", *columns) == [("blue", at(60), True, [])]


def test_k19_whether_and_how_often_are_both_right_when_a_batch_is_replayed(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    hits = hot_sensors.hits_by_sensor
    rows = [{"id": "a", "timestamp": ms(at(second)), "temperature": 130.0} for second in range(3)]
    run(spark, lake, hot_sensors.pipeline, rows[:1])
    run(spark, lake, Pipeline(hot_sensors.hot_sensors, (hot_sensors.hits_per_bucket,)), rows[1:])

    def follow() -> None:
        for step in runtime_of(hits, lake).steps(spark, lambda: NOW):
            step.run()

    # It dies once its results are committed, and before its state is.
    with monkeypatch.context() as dying, pytest.raises(Killed):
        killed_at(2, dying)
        follow()
    follow()
    state = tuples(runtime_of(hits, lake).readable["state"](spark), "by_id", "hits")
    assert state == [({"a": 3}, 3)]
    assert tuples(runtime_of(hits, lake).readable["current"](spark), "hits_of_id") == [(1,), (2,), (3,)]

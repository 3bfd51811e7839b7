"""Golden tests of keyed applications that need a chain, a correction or a repeated step, on Spark."""

from __future__ import annotations

from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from docs.examples import bubble_game, hot_sensors, word_counts
from streaming.base.intervals import from_micros
from streaming.declare.pipeline import Pipeline
from streaming.keyed.library import (
    CountTrigger,
    EventTimeTrigger,
    PurgingTrigger,
    TimeEvictor,
    deduplicated,
    followed_by,
    rolling,
    triggered_window,
)
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from streaming.windows import SessionWindow, Tumbling
from tests.streaming.keyed.functions import added, payloads, readings, rows
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


@pytest.mark.long
def test_k4_word_count_per_event(spark: SparkSession, counted: Lake) -> None:
    token_counts = counts(spark, counted, word_counts.word_counts)
    assert [row for row in token_counts if row[0] in ("to", "be", "or", "not")] == [
        ("be", 1),
        ("be", 2),
        ("not", 1),
        ("or", 1),
        ("to", 1),
        ("to", 2),
    ]
    assert not [row for row in token_counts if not row[0].strip()], "empty tokens are none"


@pytest.mark.long
def test_k5_hashtag_count_without_regard_to_case(spark: SparkSession, counted: Lake) -> None:
    state = tuples(runtime_of(word_counts.tag_counts, counted).readable["state"](spark), "token", "seen")
    assert state == [("etl", 1), ("flink", 2)]


def is_cold(row: Any) -> bool:
    return bool(row.temperature < 1)


def is_hot(row: Any) -> bool:
    return bool(row.temperature > 500)


COUNTED: dict[str, Any] = {"by": ("id",), "value": "temperature", "function": added, "result": "sum double"}
PIECES = (
    triggered_window(
        "early", readings, window=Tumbling("10 seconds"), trigger=EventTimeTrigger("2 seconds"), **COUNTED
    ),
    triggered_window(
        "bursts",
        readings,
        window=SessionWindow("3 seconds"),
        trigger=PurgingTrigger(CountTrigger(2)),
        evictor=TimeEvictor("2 seconds"),
        **COUNTED,
    ),
    rolling("extremes", readings, {"warmest": "max_by(*, temperature)", "total": "sum(temperature)"}, by=("id",)),
    followed_by(
        "pairs", readings, first=is_cold, then=is_hot, within="5 seconds", by=("id",), columns=("temperature",)
    ),
    deduplicated("first", readings, ("id",), horizon="6 seconds"),
)
DRAWN = ("a@0=0.5, b@1=600, a@2=600, a@3=7", "b@2=0.5, a@4=0.25, c@6=1", "a@15=3, b@7=501, a@1=9", "c@13=2, c@14=2")


@pytest.mark.long
def test_what_pieces_of_the_library_keep_is_what_they_find_on_spark(spark: SparkSession, lake: Lake) -> None:
    pipeline = Pipeline(readings, PIECES)
    run(spark, lake, pipeline, *map(payloads, DRAWN[:2]))
    run(spark, lake, pipeline, *map(payloads, DRAWN[2:]), end_of_input=True)
    for piece in PIECES:
        expected = testing.play(piece, *map(rows, DRAWN), end_of_input=True)
        assert expected.results, piece.name
        for to, output in expected.outputs.items():
            table = DeltaTable(lake.table(piece, to)).to_pyarrow_table().drop_columns(["_written_at", "_day"])
            stored = [tuple(row.values()) for row in table.to_pylist()]
            assert sorted(map(in_instants, stored), key=repr) == sorted(map(in_instants, output), key=repr), to


def in_instants(value: Any) -> Any:
    """The value with times within a struct as instants, as a table has them; a function is handed microseconds."""
    if isinstance(value, dict):
        return {
            name: from_micros(each) if name == "event_time" and isinstance(each, int) else each
            for name, each in value.items()
        }
    return tuple(map(in_instants, value)) if isinstance(value, tuple) else value


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

"""What becomes of a view whose declaration has changed: refused, adopted, rebuilt, and dropped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as stream
from streaming import agg, log
from streaming.base.errors import ChangedDeclaration, DeclarationError, OperatorError
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.lake.lake import Lake
from streaming.operations.rebuild import RebuildListener, rebuild
from streaming.operations.undeclared import drop, undeclared_tables
from streaming.operators import runtime as runtimes
from streaming.tables import DECLARATION, changed_facts, delta, recorded_declaration
from streaming.views.corrections import correct, plan
from streaming.views.results import read_first
from streaming.windows.window import Tumbling
from tests.support.feeds import readings
from tests.support.instants import NOW, at
from tests.support.runs import read_current, run, tuples

FIRST, SECOND, LATE = readings("a@1, b@2, a@12"), readings("a@25"), readings("a@3, b@4")

halves = replace(count_by_sensor, window=Tumbling("5 seconds"))
greatest = replace(count_by_sensor, aggregates={**count_by_sensor.aggregates, "newest": agg.maximum("timestamp")})
meaning = replace(count_by_sensor, aggregates={**count_by_sensor.aggregates, "readings": agg.sum("timestamp")})
CHANGED = {
    "another window": (halves, "window was Tumbling.size=0:00:10.* and is Tumbling.size=0:00:05"),
    "one aggregate more": (greatest, "aggregate 'newest' was nothing and is max.timestamp."),
    "another aggregate of the same name": (meaning, "aggregate 'readings' was count.* and is sum.timestamp"),
    "other keys": (replace(count_by_sensor, by=()), "by was id and is nothing"),
    "another lateness": (
        replace(count_by_sensor, late="update", allowed_lateness="1 hour"),
        "allowed lateness was nothing and is 1:00:00",
    ),
    "other rows": (replace(count_by_sensor, where="timestamp > 1"), "where was nothing and is timestamp > 1"),
}
ADOPTED = {
    "the same window in other words": replace(count_by_sensor, window=Tumbling("10000 milliseconds")),
    "a description": replace(count_by_sensor, description="Readings, counted."),
    "when it counts as old": replace(count_by_sensor, fresh_within="1 hour"),
    "open windows as well": replace(count_by_sensor, early="1 hour"),
}


def pipeline_of(*views: Windowed) -> Pipeline:
    return Pipeline(stream, views)


def counts(spark: SparkSession, lake: Lake, view: Windowed) -> list[tuple[Any, ...]]:
    return tuples(read_current(spark, lake, view), "id", "window_end", "readings")


def everything_below(lake: Lake) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(lake.root).rglob("*") if path.is_file()}


@pytest.mark.long
def test_a_declaration_that_would_change_results_is_refused_in_words_until_the_view_is_rebuilt(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline_of(count_by_sensor), FIRST, SECOND, LATE)
    assert counts(spark, lake, count_by_sensor) == [("a", at(10), 1), ("a", at(20), 1), ("b", at(10), 1)]
    before = delta.version_of(lake.first(count_by_sensor))

    for name, (changed, words) in CHANGED.items():
        with pytest.raises(ChangedDeclaration, match=words) as refused:
            run(spark, lake, pipeline_of(changed))
        assert f"tidemark rebuild {changed.name}" in str(refused.value), name
        with pytest.raises(ChangedDeclaration, match=words):
            correct(spark, lake, changed, [at(0).date()], lambda: NOW)
    assert delta.version_of(lake.first(count_by_sensor)) == before

    for name, adopted in ADOPTED.items():
        run(spark, lake, pipeline_of(adopted))
        assert counts(spark, lake, adopted) == counts(spark, lake, count_by_sensor), name

    rebuilt = rebuild(spark, lake, pipeline_of(halves), halves, now=lambda: NOW)
    assert (rebuilt.rows, list(rebuilt.corrected)) == (3, [at(0).date()])
    assert tuples(read_first(spark, lake, halves), "id", "window_end", "readings") == [
        ("a", at(5), 1),
        ("a", at(15), 1),
        ("b", at(5), 1),
    ]
    # The late rows are in, by the corrections that follow the rebuild.
    assert counts(spark, lake, halves) == [("a", at(5), 2), ("a", at(15), 1), ("b", at(5), 2)]
    assert plan(spark, lake, halves) == []

    # The rebuilt view goes on as any other.
    run(spark, lake, pipeline_of(halves), readings("a@41"))
    assert ("a", at(30), 1) in counts(spark, lake, halves)


@pytest.mark.long
def test_a_rebuild_tells_how_far_it_is(spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    class Told(RebuildListener):
        def followed(self, through: int, newest: int) -> None:
            progress.append((through, newest))

    progress: list[tuple[int, int]] = []
    run(spark, lake, pipeline_of(count_by_sensor), FIRST, SECOND, LATE)
    monkeypatch.setattr(runtimes, "ROWS_PER_CORE", 0)
    rebuild(spark, lake, pipeline_of(count_by_sensor), count_by_sensor, now=lambda: NOW, listener=Told())
    assert progress == [(0, 2), (1, 2), (2, 2)]


def test_a_refused_view_pauses_alone_while_the_log_and_the_other_views_go_on(spark: SparkSession, lake: Lake) -> None:
    """t1: both views have results. t2: one is declared otherwise, and rows come. t3: it is rebuilt, and rows come."""
    other = replace(count_by_sensor, name="other")
    run(spark, lake, pipeline_of(count_by_sensor, other), FIRST, SECOND)
    paused_at = delta.version_of(lake.first(count_by_sensor))

    with pytest.raises(ChangedDeclaration, match="view 'count_by_sensor'"):
        run(spark, lake, pipeline_of(halves, other), readings("b@24"))
    assert len(log.read_batches(lake, stream)) == 3
    assert delta.version_of(lake.first(count_by_sensor)) == paused_at
    closed_by_second = [("a", at(10), 1), ("a", at(20), 1), ("b", at(10), 1)]
    assert tuples(read_first(spark, lake, other), "id", "window_end", "readings") == closed_by_second

    rebuild(spark, lake, pipeline_of(halves, other), halves, now=lambda: NOW)
    run(spark, lake, pipeline_of(halves, other), readings("a@41"))
    assert ("a", at(30), 1) in counts(spark, lake, halves) and ("a", at(30), 1) in counts(spark, lake, other)


@pytest.mark.long
def test_a_declaration_is_not_held_against_what_an_older_version_did_not_record(
    spark: SparkSession, lake: Lake
) -> None:
    updated = replace(count_by_sensor, late="update", allowed_lateness="1 hour")
    run(spark, lake, pipeline_of(updated), FIRST)
    for spec in updated.tables:
        table = delta.open_table(lake.table(updated, spec.suffix))
        recorded = None if table is None else recorded_declaration(table)
        if table is not None and recorded is not None:
            del recorded["makes"]["allowed lateness"]
            table.alter.set_table_properties({DECLARATION: json.dumps(recorded)}, raise_if_not_exists=False)
    run(spark, lake, pipeline_of(updated), SECOND)
    assert counts(spark, lake, updated) == [("a", at(10), 1), ("a", at(20), 1), ("b", at(10), 1)]


def test_tables_of_a_view_that_is_declared_no_more_are_named_and_stay_until_they_are_dropped(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, pipeline_of(count_by_sensor), FIRST, SECOND, LATE)
    correct(spark, lake, count_by_sensor, [at(0).date()], lambda: NOW)
    renamed = pipeline_of(replace(count_by_sensor, name="counted"))
    run(spark, lake, renamed, readings("a@41"))

    left = list(undeclared_tables(lake, renamed))
    assert [(table.operator, table.name) for table in left] == [
        ("count_by_sensor", "count_by_sensor"),
        ("count_by_sensor", "count_by_sensor_changes"),
        ("count_by_sensor", "count_by_sensor_corrections"),
        ("count_by_sensor", "count_by_sensor_current"),
    ]
    with pytest.raises(DeclarationError, match=r"'counted' is declared in pipeline 'readings'.*Nothing was removed"):
        drop(lake, [renamed], "counted")
    with pytest.raises(
        OperatorError, match="left by a view or delivery 'nonesuch'; left are those of: count_by_sensor"
    ):
        drop(lake, [renamed], "nonesuch")

    declared = {path for path in everything_below(lake) if "/count_by_sensor" not in path}
    assert drop(lake, [renamed], "count_by_sensor") == left
    assert set(everything_below(lake)) == declared
    assert list(undeclared_tables(lake, renamed)) == []


def test_a_table_from_before_there_was_a_record_is_taken_as_it_is_and_gets_one(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, pipeline_of(count_by_sensor), FIRST)
    table = delta.open_table(lake.first(count_by_sensor))
    assert table is not None
    table.alter.set_table_properties({"tidemark.declaration": ""}, raise_if_not_exists=False)
    run(spark, lake, pipeline_of(count_by_sensor), SECOND)
    with pytest.raises(ChangedDeclaration, match="window was"):
        run(spark, lake, pipeline_of(halves))


def test_differences_name_each_part_that_changed() -> None:
    before = {"by": ["id"], "where": None, "aggregate": {"n": "count(1)", "gone": "sum(v)"}}
    after = {"by": [], "where": "v > 1", "aggregate": {"n": "sum(v)", "new": "max(v)"}}
    assert list(map(str, changed_facts(before, after))) == [
        "by was id and is nothing",
        "where was nothing and is v > 1",
        "aggregate 'n' was count(1) and is sum(v)",
        "aggregate 'gone' was sum(v) and is nothing",
        "aggregate 'new' was nothing and is max(v)",
    ]
    assert list(changed_facts(before, before)) == []

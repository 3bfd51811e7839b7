"""Operations on pipelines: updates with and without state, rescaling, command verbs, replay and trials."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from docs.examples.late_counts import count_by_sensor
from docs.examples.late_counts import readings as counted
from platform_assets.cli.app import COMMANDS
from streaming.base.errors import ChangedDeclaration
from streaming.declare.keyed import Keyed
from streaming.declare.pipeline import Pipeline
from streaming.declare.windowed import Windowed
from streaming.keyed.fold import Key
from streaming.lake.lake import Lake
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import fork
from streaming.operations.savepoint import savepoints
from streaming.operators.runtime import runtime_of
from streaming.windows.window import Tumbling
from tests.streaming.keyed.functions import jumps, payloads, readings, rows, sums
from tests.support.feeds import readings as drawn
from tests.support.instants import NOW
from tests.support.runs import read_current, run, tuples
from tidemark.testing import correct, play

PROJECT = Path(__file__).parents[2]


def state_of(lake: Lake, keyed: Keyed) -> dict[str, dict[str, Any]]:
    """The fields of each key's state."""
    table = DeltaTable(lake.table(keyed, "state")).to_pyarrow_table().to_pylist()
    return {row["id"]: {name: row[name] for name in keyed.state_schema.names} for row in table}


@contextmanager
def shuffled_into(spark: SparkSession, partitions: int) -> Iterator[None]:
    """With so many partitions after each shuffle."""
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, partitions)
    try:
        yield
    finally:
        spark.conf.set(name, before or "")


def alert_and_count(key: Key, row: Any) -> None:
    if key.previous is not None and abs(row.temperature - key.previous) > 1.7:
        key.alerts = (key.alerts or 0) + 1
        key.emit(temperature=row.temperature, jump=float(key.alerts))
    key.previous = row.temperature


def test_o3_state_that_is_added_begins_empty_and_one_that_is_renamed_or_removed_is_refused_by_its_name(
    spark: SparkSession, lake: Lake
) -> None:
    run(spark, lake, Pipeline(readings, (jumps,)), payloads("a@1=20, a@2=23, b@3=5"))
    assert state_of(lake, jumps) == {"a": {"previous": 23.0}, "b": {"previous": 5.0}}

    for state in ("last double", "previous bigint", "last double, alerts bigint"):
        other = Pipeline(readings, (replace(jumps, state=state),))
        with pytest.raises(ChangedDeclaration, match=f"'jumps' .*: state was previous double and is {state}"):
            run(spark, lake, other)
    assert state_of(lake, jumps) == {"a": {"previous": 23.0}, "b": {"previous": 5.0}}

    counting = replace(jumps, state="alerts bigint, previous double", on_row=alert_and_count)
    with pytest.raises(ChangedDeclaration, match="function was"):
        run(spark, lake, Pipeline(readings, (counting,)))
    # A new function under the name that is recorded; what a function does is the business of its `version`.
    added = replace(jumps, state="alerts bigint, previous double")
    run(spark, lake, Pipeline(readings, (added,)), payloads("a@4=30, b@5=5, c@6=1"))
    assert state_of(lake, added) == {
        "a": {"alerts": None, "previous": 30.0},
        "b": {"alerts": None, "previous": 5.0},
        "c": {"alerts": None, "previous": 1.0},
    }
    # From then on that declaration counts, and the old one has lost a field.
    with pytest.raises(ChangedDeclaration, match="state was alerts bigint, previous double and is previous double"):
        run(spark, lake, Pipeline(readings, (jumps,)))


def count_hot(key: Key, row: Any) -> None:
    if row.temperature > 120:
        key.hits = (key.hits or 0) + 1
        key.emit(hits=key.hits)


hot = Keyed("hot", readings, ("id",), "hits bigint", "hits bigint", count_hot)
"""K8"""


def test_o4_from_two_partitions_to_five_keyed_functions_go_on_as_if_nothing_had_changed(
    spark: SparkSession, lake: Lake
) -> None:
    before = "a@1=20, a@2=21.5, b@2=130, b@3=120, even@4=4, odd@4=5"
    after = "a@5=23.5, a@6=23, b@5=121, even@6=6, odd@7=7, c@8=200"
    pipeline = Pipeline(readings, (jumps, hot, sums))
    with shuffled_into(spark, 2):
        run(spark, lake, pipeline, payloads(before))
    with shuffled_into(spark, 5):
        run(spark, lake, pipeline, payloads(after))
    for keyed in (jumps, hot, sums):
        played = play(keyed, rows(before), rows(after))
        results = tuples(runtime_of(keyed, lake).readable["current"](spark).drop("_written_at", "_day"))
        assert sorted(results, key=repr) == sorted(played.results, key=repr), keyed.name
        assert state_of(lake, keyed) == {key[0]: state for key, state in played.state.items()}, keyed.name
    assert state_of(lake, hot)["b"] == {"hits": 2}


def test_o15_every_verb_of_the_guide_is_a_command() -> None:
    page = (PROJECT / "docs" / "streams.md").read_text()
    table = page.partition("| verb | command |")[2].partition("\n\n")[0]
    verbs = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", table, re.M))
    assert len(verbs) == 8
    named = [command for cell in verbs.values() for command in re.findall(r"`tidemark (\w+)", cell)]
    assert len(named) >= len(verbs) - 1 and not set(named) - set(COMMANDS)


@pytest.mark.long
def test_o16_live_equals_one_batch_and_what_a_fork_tries_is_what_a_rebuild_then_switches_to(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    batches = drawn("a@1, b@2, a@12"), drawn("a@25"), drawn("a@3, b@4, a@41")
    live = Pipeline(counted, (count_by_sensor,))

    def current(of: Lake, view: Windowed) -> list[tuple[Any, ...]]:
        return tuples(read_current(spark, of, view), "id", "window_end", "readings")

    for batch in batches:
        run(spark, lake, live, batch)
    correct(spark, lake, count_by_sensor, lambda: NOW)
    at_once = Lake(str(tmp_path / "at_once"))
    run(spark, at_once, live, [row for batch in batches for row in batch])
    before = current(lake, count_by_sensor)
    assert before == current(at_once, count_by_sensor)

    # A trial of another window in a fork; readers of the first lake see nothing of it until it is switched there.
    trial, halves = Lake(str(tmp_path / "trial")), replace(count_by_sensor, window=Tumbling("5 seconds"))
    fork(lake, live, None, trial)
    assert current(trial, count_by_sensor) == before and savepoints(lake, live) == []
    rebuild(spark, trial, Pipeline(counted, (halves,)), halves, now=lambda: NOW)
    assert current(lake, count_by_sensor) == before != current(trial, halves)
    rebuild(spark, lake, Pipeline(counted, (halves,)), halves, now=lambda: NOW)
    assert current(lake, halves) == current(trial, halves)

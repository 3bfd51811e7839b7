"""State that an older declaration left: what is taken over, what `migrate` makes of it, and that it does so once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, FunctionError
from streaming.declare.pipeline import Pipeline
from streaming.keyed.fold import Key
from streaming.keyed.library import CountTrigger
from streaming.keyed.migration import Migrated, counts_as
from streaming.lake.lake import Lake
from streaming.operators.progress import generation_of
from streaming.operators.runtime import runtime_of
from streaming.service.drain import Drained
from streaming.tables import delta
from streaming.windows import Tumbling
from tests.streaming.keyed.functions import SECOND, forget, jumps, payloads, readings, sorted_out
from tests.streaming.keyed.test_connected_steps import copied
from tests.streaming.keyed.test_steps import follow, tables
from tests.streaming.keyed.test_triggers import triggered
from tests.support.instants import at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tidemark.testing import read

OLD = "last double"


@pytest.mark.parametrize(
    ("before", "after", "is_taken_over"),
    [
        (OLD, f"{OLD}, rows bigint", True),
        ("", OLD, True),
        (f"{OLD}, rows int", f"rows bigint, {OLD}", True),
        ("sums map<string, array<decimal(5, 2)>>", "sums map<string, array<decimal(7, 3)>>", True),
        (OLD, "", False),
        (OLD, "newest double", False),
        (OLD, "last bigint, rows bigint", False),
        ("rows bigint", "rows int", False),
        ("most decimal(5, 2)", "most decimal(5, 3)", False),
        ("pair struct<a: int>", "pair struct<b: int>", False),
    ],
)
def test_state_is_taken_over_where_fields_were_added_or_hold_all_that_they_held(
    before: str, after: str, is_taken_over: bool
) -> None:
    keyed, makes = replace(jumps, state=after), {**jumps.fingerprint, "state": before}
    assert counts_as(keyed, makes) == ({**makes, "state": after} if is_taken_over else makes)


@pytest.mark.parametrize(
    ("after", "is_taken_over"),
    [
        (replace(sorted_out, sides={**sorted_out.sides, "odd": "n bigint"}), True),
        (replace(sorted_out, sides={"odd": "n bigint"}), False),
        (replace(sorted_out, sides={"negative": "temperature double", "odd": "n bigint"}), False),
        (replace(sorted_out, sides={**sorted_out.sides, "odd": "n bigint"}, order="event", idle="1 day"), False),
    ],
    ids=["added", "one is gone", "other columns", "corrected"],
)
def test_side_outputs_may_be_added_to_those_that_are_there(after: Any, is_taken_over: bool) -> None:
    before = {**sorted_out.fingerprint, "order": after.order, "idle": after.idle_micros}
    assert (counts_as(after, before) == after.fingerprint) == is_taken_over


@pytest.mark.parametrize(
    ("before", "after", "is_taken_over"),
    [
        ({}, {"on_error": "side"}, True),
        ({"on_error": "side"}, {}, False),
        ({"order": "event", "idle": "1 day"}, {"order": "event", "idle": "1 day", "on_error": "side"}, False),
    ],
)
def test_rows_that_fail_may_go_aside_from_now_on(
    before: dict[str, Any], after: dict[str, Any], is_taken_over: bool
) -> None:
    old, new = (replace(jumps, **declared) for declared in (before, after))
    assert (counts_as(new, dict(old.fingerprint)) == new.fingerprint) == is_taken_over


def to_average(state: dict[str, Any], version: int) -> Mapping[str, Any]:
    assert version == 1
    if state["seen"] == [7.0, 7.0]:
        return {}
    return {"total": sum(state["seen"]), "rows": len(state["seen"])}


def averaged_out(key: Key, row: Any) -> None:
    key.total, key.rows = (key.total or 0.0) + row.temperature, (key.rows or 0) + 1
    key.timer("settled", key.at + 5 * SECOND)


def settle_average(key: Key) -> None:
    if key.rows:
        key.emit(temperature=key.total / key.rows, late=False)
    key.clear()


second = replace(
    sorted_out,
    state="total double, rows bigint",
    on_row=averaged_out,
    timers={"settled": settle_average, "later": forget},
    version=2,
    migrate=to_average,
)


@pytest.mark.parametrize(
    ("newer", "is_migrated"),
    [
        (second, True),
        (replace(sorted_out, state="total double", migrate=to_average), True),
        (replace(second, migrate=None), False),
        (replace(second, version=1), False),
        (replace(second, timers={"later": forget}), False),
        (replace(second, result="temperature double"), False),
    ],
    ids=["version", "state alone", "no migrate", "version stays", "timer is gone", "results"],
)
def test_only_state_and_a_raised_version_without_a_lost_timer_are_migrated(newer: Any, is_migrated: bool) -> None:
    assert (counts_as(newer, dict(sorted_out.fingerprint)) == newer.fingerprint) == is_migrated


def broken(state: dict[str, Any], version: int) -> Any:
    return {"nothing": None, "unknown": {"mean": 1.0}, "wrong": {"total": "x"}}[state["seen"]]


@pytest.mark.parametrize(
    ("case", "why"),
    [
        ("nothing", r"it returned None, which is no dict of state fields \(total, rows\)"),
        ("unknown", r"it returned 'mean', which is not declared; fields are: total, rows"),
        ("wrong", r"field 'total': 'x' is a str and no double"),
        ("raises", r"KeyError: 'raises'"),
    ],
)
def test_a_state_that_cannot_be_migrated_is_told_with_its_key(case: str, why: str) -> None:
    migrated = Migrated(replace(second, migrate=broken), 1)
    with pytest.raises(FunctionError, match=rf"'sorted_out' cannot .* key \('a',\).*{why}.*version 1: .*{case}"):
        migrated(("a",), {"seen": case})


def reverted(state: dict[str, Any], version: int) -> Any:
    raise RuntimeError(f"from {version}")


FIRST = ("a@1=1, b@2=2, a@3=3", "b@4=4, c@5=7, c@5.5=7")


@pytest.fixture(scope="module")
def left(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake whose state is of version 1, with a timer for each of three keys."""
    lake = Lake(str(tmp_path_factory.mktemp("left") / "lake"))
    run(spark, lake, Pipeline(readings, (sorted_out,)), *map(payloads, FIRST))
    return lake


def state_of(lake: Lake) -> list[tuple[Any, ...]]:
    rows = DeltaTable(lake.table(second, "state")).to_pyarrow_table().to_pylist()
    return sorted((row["id"], row["total"], row["rows"], dict(row["_timers"])["settled"]) for row in rows)


MIGRATED = [("a", 4.0, 2, at(11)), ("b", 6.0, 2, at(12)), ("c", None, None, at(15))]


def go_on(spark: SparkSession, lake: Lake, *more: str) -> Drained:
    return run(spark, lake, Pipeline(readings, (second,)), *map(payloads, more))


@pytest.mark.long
def test_a_raised_version_migrates_every_key_once_and_what_was_emitted_stays(
    spark: SparkSession, left: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = copied(left, tmp_path / "lake")
    emitted = tables(lake, sorted_out)[""]
    go_on(spark, lake)
    assert state_of(lake) == MIGRATED
    assert "goes on as version 2: " in caplog.text and "has migrated the state of version 1, 3 keys." in caplog.text
    assert tables(lake, second)[""] == emitted
    assert generation_of(delta.open_table(lake.table(second))) == 0

    caplog.clear()
    go_on(spark, lake, "a@6=5", "d@20=1")
    assert "migrated" not in caplog.text and "source text" not in caplog.text
    settled = [row for row in tables(lake, second)[""] if row not in emitted]
    assert [(key, value) for key, _, value, *_ in settled] == [("a", 3.0), ("b", 3.0)]

    words = f"from version 1 by {to_average.__module__}.to_average"
    assert runtime_of(second, lake).explain(spark)["migrated"] == words
    findings = [entry for entry in audit(spark, lake, Pipeline(readings, (second,))) if entry.law == "cuts"]
    assert {entry.subject for entry in findings} == {
        f"sorted_out{end}" for end in ("", "_negative", "_failed", "_state")
    }
    assert all(entry.holds and words in entry.compared for entry in findings)
    with pytest.raises(ChangedDeclaration, match=r"state was total double.*raise `version` and declare `migrate`"):
        runtime_of(replace(second, state="total string", migrate=None), lake).check()


def test_a_migration_that_is_killed_before_or_after_any_commit_is_done_once(
    spark: SparkSession, left: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = len(second.tables) + 1
    for kill in range(1, commits + 1):
        lake = copied(left, tmp_path / str(kill))
        with monkeypatch.context() as dying:
            killed_at(kill, dying)
            with pytest.raises(Killed):
                follow(spark, lake, second)
        if kill > 1:
            with pytest.raises(ChangedDeclaration):
                runtime_of(sorted_out, lake).check()
        runtime_of(second, lake).check()
        follow(spark, lake, second)
        follow(spark, lake, second)
        assert state_of(lake) == MIGRATED, kill


def test_a_migrate_that_raises_changes_nothing(spark: SparkSession, left: Lake, tmp_path: Path) -> None:
    lake = copied(left, tmp_path / "lake")
    before = tables(lake, sorted_out)
    failing = replace(second, migrate=reverted)
    with pytest.raises(
        FunctionError, match=r"migrate failed with RuntimeError: from 1 \(.*\)\. State of version 1: \{\"seen\""
    ):
        follow(spark, lake, failing)
    runtime_of(sorted_out, lake).check()
    follow(spark, lake, sorted_out)
    assert tables(lake, sorted_out) == before


@pytest.mark.long
def test_state_behind_its_results_is_not_migrated_before_the_step_is_ended(
    spark: SparkSession, left: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied(left, tmp_path / "lake")
    go_on_with = Pipeline(readings, (sorted_out,))
    with monkeypatch.context() as dying:
        # The log's batch, two side outputs, and the results; then the state's commit dies.
        killed_at(5, dying)
        with pytest.raises(Killed):
            run(spark, lake, go_on_with, payloads("a@6=5"))
    with pytest.raises(ChangedDeclaration, match=r"its state is behind its results\. Run it once more"):
        runtime_of(second, lake).check()
    run(spark, lake, go_on_with)
    go_on(spark, lake)
    assert [row[:3] for row in state_of(lake)] == [("a", 9.0, 3), ("b", 6.0, 2), ("c", None, None)]


@pytest.mark.long
def test_a_widened_type_takes_over_what_is_there(
    spark: SparkSession, left: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = copied(left, tmp_path / "lake")
    follow(spark, lake, replace(sorted_out, state="seen array<double>, rows int"))
    assert "has new state, rows: keys that are there begin without it" in caplog.text
    caplog.clear()
    follow(spark, lake, replace(sorted_out, state="rows bigint, seen array<double>"))
    assert "has new state, wider types" in caplog.text
    rows = DeltaTable(lake.table(sorted_out, "state")).to_pyarrow_table().to_pylist()
    assert {row["id"]: (row["seen"], row["rows"]) for row in rows}["a"] == ([1.0, 3.0], None)


@pytest.mark.long
def test_a_side_output_that_is_added_begins_with_the_next_step_and_the_audit_leaves_it_out(
    spark: SparkSession, lake: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    threes = triggered(window=Tumbling("10 seconds"), trigger=CountTrigger(3))
    before = replace(threes, sides={"too_late": threes.sides["too_late"]})
    run(spark, lake, Pipeline(readings, (before,)), payloads("a@1=1, a@2=2, a@3=3, a@4=4"))
    assert "new side outputs" not in caplog.text
    pipeline = Pipeline(readings, (threes,))
    assert all(entry.holds for entry in audit(spark, lake, pipeline))
    run(spark, lake, pipeline, payloads("a@21=1"))
    assert "has new side outputs, unfired: they begin with its next step" in caplog.text
    assert read(spark, lake, threes, "unfired", "id", "sum") == [("a", 10.0)]
    findings = {entry.subject: entry for entry in audit(spark, lake, pipeline) if entry.law == "cuts"}
    left_out = {name for name, entry in findings.items() if "unfired began later" in entry.compared}
    assert all(entry.holds for entry in findings.values()) and findings["triggered"].checked == 1
    assert left_out == {"triggered_state", "triggered_unfired"}

"""Keyed functions on Spark: the applications, and steps that are cut or killed anywhere."""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema
from pyspark.sql import SparkSession

from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, FunctionError, RewrittenError
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.declare.operator import Operator
from streaming.declare.pipeline import Pipeline
from streaming.keyed import state_table
from streaming.keyed.state_table import spark_schema
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.undeclared import undeclared_tables
from streaming.operators import runtime as runtimes
from streaming.operators.progress import generation_of
from streaming.operators.runtime import runtime_of
from streaming.service.query_errors import transient_cause
from streaming.tables import TaskFiles, delta
from tests.streaming.keyed.functions import (
    counts,
    fires,
    fours,
    jumps,
    newest,
    payloads,
    readings,
    rises,
    rows,
    self_cleaning,
    slid,
    sorted_out,
    sums,
    switches,
)
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tidemark.testing import play

BATCHES = ("a@1=1, b@2=2, a@3=-1", "b@4=3, a@5=4", "c@6=5, a@7=-2, b@8=13", "a@30=6, b@9=7")

PATIENT = replace(readings, clock=BoundedOutOfOrderness("5 minutes"))
APPLICATIONS = tuple(
    replace(each, of=PATIENT)
    for each in (jumps, self_cleaning, rises, sums, counts, switches, fires, slid, fours, newest)
)
FIRST = (
    "k6@1=20, k6@2=21.5, k6@3=23.5, k6@4=23, k12@0=10, k12@.25=11, k12@.5=12, k12@.75=12, k12@1=13, k12@1.5=9, "
    "k13@0=10, k13@8=10, k13@9=2, k13@17.999=-1, k13@18=-1, k17@2=2, k17@4=4, k18@1=1, k14@0:00=1, "
    "w16@1=1, w16@2=2, w16@3=3, w16@4=4, w16@5=5",
    "k14@0:10=2, k14@0:20=1, k14@0:30:00.001=2, k11@0:10=22, k17@6=6, k18@2=1, k18@3=1",
    "k14@0:41=2",
)
SECOND = (
    "k14@0:40=1",
    "k14@0:50=1, k14@0:55=1, k14@0:56=2, k14@0:57=2, k17@8=8, k17@10=10, k18@4=1, "
    "w16@6=6, w16@7=7, w16@8=8, w16@9=9, w16@10=10",
    "other@1:00=5",
    "k11@1:09:59.999=30",
)


def tables(lake: Lake, keyed: Operator) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of every table of an operator but for when they were written, sorted."""
    rows_by_table = {}
    for spec in keyed.tables:
        table = DeltaTable(lake.table(keyed, spec.suffix)).to_pyarrow_table()
        kept = table.select([name for name in table.column_names if name != "_written_at"]).to_pylist()
        rows_by_table[spec.suffix] = sorted((tuple(row.values()) for row in kept), key=repr)
    return rows_by_table


def follow(spark: SparkSession, lake: Lake, keyed: Operator) -> None:
    for step in runtime_of(keyed, lake).steps(spark, lambda: NOW):
        step.run()


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with four batches in the log, which `sorted_out` has followed in one step."""
    lake = Lake(str(tmp_path_factory.mktemp("logged") / "lake"))
    run(spark, lake, Pipeline(sorted_out.streams[0], (sorted_out,)), *map(payloads, BATCHES))
    return lake


@pytest.mark.long
def test_steps_that_are_killed_between_any_two_commits_leave_the_tables_of_one_step_that_was_not(
    spark: SparkSession, logged: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = tables(logged, sorted_out)
    assert all(undisturbed.values()), "every table has something to lose"
    # Each commit of a step from nothing, and of one that goes on from state.
    for kill in range(1, 2 * len(sorted_out.tables) + 2):
        lake = Lake(str(tmp_path / str(kill)))
        shutil.copytree(logged.path("readings", "log"), lake.path("readings", "log"))
        with monkeypatch.context() as dying:
            dying.setattr(runtimes, "ROWS_PER_CORE", 1)
            killed_at(kill, dying)
            with pytest.raises(Killed):
                follow(spark, lake, sorted_out)
        follow(spark, lake, sorted_out)
        assert tables(lake, sorted_out) == undisturbed, kill


@pytest.fixture(scope="module")
def applied(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with all applications in one pipeline, in two runs."""
    lake = Lake(str(tmp_path_factory.mktemp("applied") / "lake"))
    run(spark, lake, Pipeline(PATIENT, APPLICATIONS), *map(payloads, FIRST))
    run(spark, lake, Pipeline(PATIENT, APPLICATIONS), *map(payloads, SECOND), end_of_input=True)
    return lake


GOLDEN: dict[str, list[tuple[Any, ...]]] = {
    "jumps": [("k6", at(3), 23.5, 2.0)],
    "self_cleaning": [("k11", at(4199.999), 30.0, 8.0)],
    "rises": [("k12", at(1.25), at(1.25))],
    "sums": [("k17", at(n), total) for n, total in ((2, 2), (4, 6), (6, 12), (8, 20), (10, 30))],
    "counts": [("k18", at(n), n) for n in (1, 2, 3, 4)],
    "switches": [("k13", at(17.999), at(17.999))],
    "slid": [("w16", at(3), 3, 6.0), ("w16", at(6), 4, 18.0), ("w16", at(9), 4, 30.0)],
    "fires": [("k14", at(s), at(h), at(s)) for h, s in ((0, 600), (2400, 2460), (3300, 3360))],
}


@pytest.mark.long
@pytest.mark.parametrize("keyed", APPLICATIONS, ids=lambda keyed: str(keyed.name))
def test_k6_k11_k12_k13_k14_k17_k18_w15_w16_on_spark(spark: SparkSession, applied: Lake, keyed: Keyed) -> None:
    results = tuples(runtime_of(keyed, applied).readable["current"](spark).drop("_written_at", "_day"))
    golden = sorted(GOLDEN.get(keyed.name, []))
    assert [row for row in results if row[0] in {row[0] for row in golden}] == golden
    played = play(keyed, *map(rows, (*FIRST, *SECOND)), end_of_input=True)
    assert sorted(results, key=repr) == sorted(played.results, key=repr)
    state = DeltaTable(applied.table(keyed, "state")).to_pyarrow_table().to_pylist()
    assert {tuple(row[name] for name in keyed.by) for row in state} == set(played.state)


@pytest.mark.long
def test_an_end_of_input_with_nothing_pending_does_not_move_the_clock(
    spark: SparkSession, logged: Lake, tmp_path: Path
) -> None:
    lake, pipeline = copied(logged, tmp_path / "lake"), Pipeline(readings, (rises, sorted_out))
    first = run(spark, lake, pipeline, end_of_input=True).head
    assert first is not None and first.end_of_input
    again = run(spark, lake, pipeline, end_of_input=True).head
    assert again is not None and (again.number, again.after) == (first.number, first.after)
    assert tables(lake, sorted_out)["state"] == []


def test_a_function_that_raises_on_a_worker_stops_its_step_with_the_reason_and_nothing_is_kept(
    spark: SparkSession, logged: Lake, tmp_path: Path
) -> None:
    strict, lake = replace(sorted_out, name="strict", on_error="pause"), copied(logged, tmp_path / "lake")
    with pytest.raises(FunctionError, match=r"^keyed function 'strict' raised in on_row of key \('b',\).*thirteen"):
        follow(spark, lake, strict)
    assert not any(tables(lake, strict).values())


@pytest.mark.long
def test_a_changed_version_is_refused_until_it_is_built_anew_and_a_changed_text_only_warns(
    spark: SparkSession, logged: Lake, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copied(logged, tmp_path / "lake")
    before = tables(lake, sorted_out)
    with monkeypatch.context() as edited:
        edited.setattr(inspect, "getsource", lambda function: "def sort_out(key, row): ...")
        runtime_of(sorted_out, lake).check()
    assert "source text of keyed function 'sorted_out' has changed" in caplog.text

    second = replace(sorted_out, version=2)
    with pytest.raises(ChangedDeclaration, match=r"sort_out version 1 and is .*sort_out version 2"):
        runtime_of(second, lake).check()
    pipeline = Pipeline(readings, (second,))
    assert rebuild(spark, lake, pipeline, second, now=lambda: NOW).rows == 9
    assert tables(lake, second) == before
    assert generation_of(delta.open_table(lake.table(second))) == 1

    # The new generation goes on, and is the same as one that was never built anew.
    for each, function in ((lake, second), (other := copied(logged, tmp_path / "other"), sorted_out)):
        run(spark, each, Pipeline(readings, (function,)), payloads("a@40=1, b@41=-2"))
    assert tables(lake, second) == tables(other, sorted_out)
    assert runtime_of(second, lake).explain(spark)["position"].endswith("built anew 1 time")
    assert list(undeclared_tables(lake, pipeline)) == []
    assert "sorted_out_state" not in {entry.table for entry in maintain(lake, pipeline, now=lambda: NOW)}


def as_an_older_release_left_it(uri: str) -> None:
    """The state in one file, without the hashes of its keys."""
    rows = DeltaTable(uri).to_pyarrow_table()
    of_old = rows.select([name for name in rows.column_names if name not in ("_hash", "_due")] + ["_due"])
    files = TaskFiles(uri, of_old.schema)
    for batch in of_old.to_batches():
        files.write(batch)
    columns = Schema.from_json(spark_schema(of_old.schema, partitioned=False).json())
    delta.commit_files(
        uri, files.close(), says={}, numbers={}, fence=lambda table: None, mode="overwrite", schema=columns
    )


def in_one_file(uri: str) -> None:
    DeltaTable(uri).optimize.compact()
    assert len(DeltaTable(uri).file_uris()) == 1


def in_many_buckets(uri: str) -> None:
    pass


MORE = ("a@40=1, b@41=2, c@41=3, d@42=4, e@42=5, f@42=6", "b@43=-2, c@43=1")


@pytest.fixture(scope="module")
def gone_on(spark: SparkSession, logged: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """The lake two batches later, as it is where nothing has happened to its state meanwhile."""
    lake = copied(logged, tmp_path_factory.mktemp("gone_on") / "lake")
    for batch in MORE:
        run(spark, lake, Pipeline(readings, (sorted_out,)), payloads(batch))
    return lake


@pytest.mark.long
@pytest.mark.parametrize("change", [as_an_older_release_left_it, in_one_file, in_many_buckets])
def test_however_the_state_lies_in_files_a_function_goes_on_as_if_nothing_had_happened_to_it(
    spark: SparkSession,
    logged: Lake,
    gone_on: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[str], None],
) -> None:
    lake = copied(logged, tmp_path / "lake")
    run(spark, lake, Pipeline(readings, (sorted_out,)), payloads(MORE[0]))
    change(lake.table(sorted_out, "state"))
    if change is in_many_buckets:
        monkeypatch.setattr(state_table, "_FEWEST", 64)
    run(spark, lake, Pipeline(readings, (sorted_out,)), payloads(MORE[1]))
    assert tables(lake, sorted_out) == tables(gone_on, sorted_out)


@pytest.mark.long
def test_a_step_writes_only_the_buckets_anew_that_have_rows_or_timers_that_are_due(
    spark: SparkSession, gone_on: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, pipeline = copied(gone_on, tmp_path / "lake"), Pipeline(readings, (sorted_out,))
    monkeypatch.setattr(state_table, "_FEWEST", 64)

    def files() -> dict[str, str]:
        rows = DeltaTable(lake.table(sorted_out, "state")).to_pyarrow_dataset().get_fragments()
        return {key: each.path for each in rows for key in each.to_table(columns=["id"])["id"].to_pylist()}

    run(spark, lake, pipeline, payloads("a@43.5=1"))
    before = files()
    assert len(set(before.values())) > 3, "keys of this test are in buckets of their own"
    run(spark, lake, pipeline, payloads("a@44=1, new@44=2"))
    after = files()
    assert {key for key, path in before.items() if after.get(key) != path} == {"a"}
    # Nothing but the clock reaches the others, whose timers are due.
    run(spark, lake, pipeline, payloads("z@15:00=1"))
    assert set(files()) == {"z"}


def test_state_that_somebody_rewrote_in_the_midst_of_a_step_is_not_written_over(tmp_path: Path) -> None:
    uri, schema = str(tmp_path), pa.schema([("n", pa.int64())])
    delta.create(uri, spark_schema(schema, partitioned=False), append_only=False, description="")
    files = TaskFiles(uri, schema)
    files.write(pa.record_batch({"n": [1]}))
    [first] = files.close()
    delta.commit_files(uri, [first], says={}, numbers={}, fence=lambda table: None)
    replaced = [first.path]
    delta.commit_files(uri, [], says={}, numbers={}, fence=lambda table: None, outdated=replaced)
    assert DeltaTable(uri).to_pyarrow_table().num_rows == 0
    with pytest.raises(RewrittenError, match=r"was to be replaced and is not there any more") as failure:
        delta.commit_files(uri, [], says={}, numbers={}, fence=lambda table: None, outdated=replaced)
    assert transient_cause(failure.value) == str(failure.value), "the stream goes on by itself"


def copied(lake: Lake, place: Path) -> Lake:
    shutil.copytree(lake.root, place)
    return Lake(str(place))


def test_an_audit_computes_every_table_again(spark: SparkSession, logged: Lake) -> None:
    findings = list(audit(spark, logged, Pipeline(readings, (sorted_out,))))
    of_tables = {entry.subject: (entry.checked, entry.broken) for entry in findings if entry.law == "cuts"}
    assert of_tables == {
        "sorted_out": (9, 0),
        "sorted_out_negative": (2, 0),
        "sorted_out_failed": (1, 0),
        "sorted_out_state": (1, 0),
    }

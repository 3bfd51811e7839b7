"""Selections on Spark: steps that are cut or killed anywhere, several logs, laws that see what is wrong, deliveries."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, RowFunction, Selected, Side, Stream, drain
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, DeclarationError, FencedError
from streaming.declare.delivery import Delivery
from streaming.declare.operator import Operator
from streaming.lake.lake import Lake
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.undeclared import undeclared_tables
from streaming.operators import runtime as runtimes
from streaming.operators.progress import FilterCounts, generation_of
from streaming.operators.runtime import runtime_of
from streaming.sinks.files import JsonLines
from streaming.tables import delta
from tests.support.delivering import Courier
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run, tuples
from tidemark.testing import Payload

orders = Stream(
    name="orders",
    source=Files("landing/orders", files_per_batch=1),
    format=Json("id string not null, at timestamp not null, items array<string>, amount decimal(12,2)"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)


def twice(row: Any, opened: None) -> Iterator[dict[str, Any]]:
    yield {"id": row.id, "at": row.at}
    yield {"id": row.id.upper()}


split = Selected(
    "split",
    orders,
    where="amount > 1",
    sides={
        "items": Side({"id": "id", "item": "item"}, where="item <> 'x'", explode={"item": "items"}),
        "cheap": Side(("id", "amount"), "amount <= 1"),
    },
)
doubled = Selected("doubled", orders, ("id", "at"), function=RowFunction(twice, "id string, at timestamp"))
pipeline = Pipeline(orders, (split, doubled))


def order(id_: str, seconds: float, amount: float | None, *items: str) -> dict[str, Any]:
    return {"id": id_, "at": at(seconds).isoformat(), "amount": amount, "items": list(items) or None}


BATCHES: tuple[list[Payload], ...] = (
    [order("a", 1, 2.5, "p", "x"), order("b", 2, 1), "broken"],
    [order("c", 90_000, 7, "q", "r"), order("d", 3, None, "x")],
    ["broken"],
    [order("e", 4, 0.5), order("f", 100, 3, "s", "s")],
)


def tables(lake: Lake, of: Operator) -> dict[str, Any]:
    """The rows of every table but for when they were written, sorted, and what its filter counted."""
    contents: dict[str, Any] = {}
    for spec in of.tables:
        table = DeltaTable(lake.table(of, spec.suffix))
        rows = table.to_pyarrow_table().drop_columns(["_written_at"]).to_pylist()
        numbers = [table.transaction_version(name) for name in ("rows_in", "kept")]
        contents[spec.suffix] = (numbers, sorted((tuple(row.values()) for row in rows), key=repr))
    return contents


def follow(spark: SparkSession, lake: Lake, of: Operator) -> None:
    for step in runtime_of(of, lake).steps(spark, lambda: NOW):
        step.run()


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with four batches in the log, which both selections have followed in one step."""
    lake = Lake(str(tmp_path_factory.mktemp("logged") / "lake"))
    run(spark, lake, pipeline, *BATCHES)
    return lake


@pytest.fixture
def copied(logged: Lake, tmp_path: Path) -> Lake:
    """A copy of it, which a test may change; files of the copy would be other ones, and are left out."""
    shutil.copytree(logged.root, tmp_path / "copy", ignore=shutil.ignore_patterns("landing"))
    return Lake(str(tmp_path / "copy"))


def test_each_output_takes_its_rows_with_where_they_are_from_and_counts_what_it_removes(
    spark: SparkSession, logged: Lake
) -> None:
    runtime = runtime_of(split, logged)
    own, items, cheap = (runtime.readable[side](spark) for side in ("current", "items", "cheap"))
    # A row that is late by its stamp goes through as well.
    assert tuples(own, "id", "_batch", "_at") == [("a", 0, at(1)), ("c", 1, at(90_000)), ("f", 3, at(100))]
    assert tuples(items, "id", "_element", "item", "_batch") == [
        *(("a", 0, "p", 0), ("c", 0, "q", 1), ("c", 1, "r", 1)),
        *(("f", 0, "s", 3), ("f", 1, "s", 3)),
    ]
    assert [row[0] for row in tuples(cheap, "id")] == ["b", "e"]
    assert tuples(own.where("id = 'c'"), "_day", "_origin.position") == [(at(90_000).date(), 0)]
    assert runtime.filtered() == {
        "": FilterCounts(rows_in=6, kept=3),
        "items": FilterCounts(rows_in=7, kept=5),
        "cheap": FilterCounts(rows_in=6, kept=2),
    }
    commit = json.loads(DeltaTable(logged.table(split)).history(1)[0]["userMetadata"])
    assert (commit["rows_in"], commit["kept"], commit["removed"]) == (6, 3, 3)


def test_a_function_may_make_several_rows_of_one_with_the_place_it_came_from(spark: SparkSession, logged: Lake) -> None:
    rows = runtime_of(doubled, logged).readable["current"](spark).where("_batch = 0")
    assert tuples(rows, "id", "at", "_element") == [
        *(("A", None, 1), ("B", None, 1)),
        *(("a", at(1), 0), ("b", at(2), 0)),
    ]


@pytest.mark.long
def test_steps_that_are_cut_and_killed_anywhere_leave_the_tables_of_one_that_was_not(
    spark: SparkSession, logged: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = tables(logged, split)
    assert all(rows for _, rows in undisturbed.values()), "every table has something to lose"
    small, large, outputs = 1, 1_000_000, len(split.tables)
    # Steps of a batch each that are killed, and one after them; and one that is killed, and steps of a batch each.
    kills = [(kill, small, large) for kill in range(1, 2 * outputs + 2)]
    kills += [(kill, large, small) for kill in range(1, outputs + 1)]
    for kill, before, after in kills:
        lake = Lake(str(tmp_path / f"{kill}-{before}"))
        shutil.copytree(logged.path("orders", "log"), lake.path("orders", "log"))
        with monkeypatch.context() as dying:
            dying.setattr(runtimes, "ROWS_PER_CORE", before)
            killed_at(kill, dying)
            with pytest.raises(Killed):
                follow(spark, lake, split)
        monkeypatch.setattr(runtimes, "ROWS_PER_CORE", after)
        follow(spark, lake, split)
        assert tables(lake, split) == undisturbed, (kill, before)


def test_a_step_of_rejected_rows_alone_starts_no_spark_and_says_how_far_it_is(
    spark: SparkSession, copied: Lake
) -> None:
    run(spark, copied, Pipeline(orders, (doubled,)), ["broken"])
    (step,) = runtime_of(split, copied).steps(spark, lambda: NOW)
    spark.sparkContext.setJobGroup("rejected", "rejected")
    assert step.run().rows == 0
    assert spark.sparkContext.statusTracker().getJobIdsForGroup("rejected") == []
    assert DeltaTable(copied.table(split)).transaction_version("through.orders") == 4


@pytest.mark.long
def test_the_audit_sees_a_row_that_is_missing_and_counts_that_are_wrong(spark: SparkSession, copied: Lake) -> None:
    delta.note(copied.table(split, "items"), says={}, numbers={"kept": 4})
    DeltaTable(copied.table(split, "cheap")).alter.set_table_properties({"delta.appendOnly": "false"})
    DeltaTable(copied.table(split, "cheap")).delete("id = 'e'")
    broken = {(each.law, each.subject) for each in audit(spark, copied, Pipeline(orders, (split,))) if each.broken}
    assert broken == {("conservation", "split_items"), ("cuts", "split_cheap")}


def test_a_process_that_was_away_while_another_one_stepped_is_refused(spark: SparkSession, copied: Lake) -> None:
    run(spark, copied, Pipeline(orders, (doubled,)), [order("g", 5, 9)])
    away = runtime_of(split, copied)
    (step,) = away.steps(spark, lambda: NOW)
    stands = DeltaTable(copied.table(split)).transaction_version("batch")
    assert stands == 3
    late = away._steps  # type: ignore[attr-defined]
    committing = late._run

    def overtaken(*given: Any) -> Any:
        follow(spark, copied, split)
        return committing(*given)

    late._run = overtaken
    with pytest.raises(FencedError, match="'split' was at batch 3 and is at batch 4 now"):
        step.run()
    assert runtime_of(split, copied).filtered()[""] == FilterCounts(rows_in=7, kept=4)


@pytest.mark.long
def test_a_changed_selection_is_refused_rebuilt_maintained_and_explained(spark: SparkSession, copied: Lake) -> None:
    changed = replace(split, where="amount > 5")
    refused = r"rows was where amount > 1, all columns and is where amount > 5, all columns"
    with pytest.raises(ChangedDeclaration, match=refused):
        runtime_of(changed, copied).check()
    runtime_of(replace(split, every="1 minute", description="Other words."), copied).check()
    other = Pipeline(orders, (changed, doubled))
    assert rebuild(spark, copied, other, changed, now=lambda: NOW).rows == 1
    assert generation_of(DeltaTable(copied.table(changed, "items"))) == 1
    run(spark, copied, other, [order("g", 5, 9, "t"), order("h", 6, 2)])
    assert tuples(runtime_of(changed, copied).readable["current"](spark), "id") == [("c",), ("g",)]
    assert runtime_of(changed, copied).filtered()[""] == FilterCounts(rows_in=8, kept=2)
    assert {"split", "split_items", "split_cheap"} <= {entry.table for entry in maintain(copied, other)}
    assert all(finding.holds for finding in audit(spark, copied, other))
    assert list(undeclared_tables(copied, other)) == []
    explanation = runtime_of(changed, copied).explain(spark)
    assert explanation["results"] == "where amount > 5; all columns. 8 rows in, 2 kept, 6 removed"
    assert explanation["items"].startswith("each item of items; where item <> 'x'; id, item. 8 rows in, 6 kept")
    assert explanation["position"] == "batch 4 of 4; built anew 1 time"


@pytest.mark.long
def test_a_column_that_is_added_to_the_stream_is_selected_from_then_on(spark: SparkSession, copied: Lake) -> None:
    columns = "id string not null, at timestamp not null, items array<string>, amount decimal(12,2), city string"
    wider = replace(orders, format=Json(columns))
    selected = replace(split, of=wider)
    run(spark, copied, Pipeline(wider, (selected,)), [{**order("g", 5, 9), "city": "Oslo"}])
    rows = runtime_of(selected, copied).readable["current"](spark)
    assert tuples(rows, "id", "city") == [("a", None), ("c", None), ("f", None), ("g", "Oslo")]
    assert all(finding.holds for finding in audit(spark, copied, Pipeline(wider, (selected,))))


def test_rows_of_an_output_are_delivered_once_in_the_order_of_the_log(spark: SparkSession, copied: Lake) -> None:
    def arrived(folder: str) -> list[dict[str, Any]]:
        paths = sorted(path for path in Path(copied.root, folder).rglob("*.json") if path.parent.name != "_delivered")
        return [json.loads(line) for path in paths for line in path.read_text().splitlines()]

    own = Delivery("own", split, JsonLines("own", by="none"), select=("id",), batch=2)
    items = Delivery("wares", split, JsonLines("wares", by="none"), output="items", where="item <> 'r'")
    couriers = [Courier(spark, copied, each) for each in (own, items)]
    assert [each.deliver() for each in couriers] == [2, 1]
    assert [row["id"] for row in arrived("own")] == ["a", "c", "f"]
    assert arrived("wares") == [{"id": id_, "item": item} for id_, item in ("ap", "cq", "fs", "fs")]
    run(spark, copied, pipeline, [order("g", 5, 9, "t")])
    maintain(copied, pipeline)
    assert [each.deliver() for each in couriers] == [1, 1]
    assert [row["id"] for row in arrived("own")] == ["a", "c", "f", "g"]
    assert arrived("wares")[-1] == {"id": "g", "item": "t"}


def test_expressions_whose_types_lose_values_together_are_refused_before_the_first_step(
    spark: SparkSession, lake: Lake
) -> None:
    columns = "id string not null, at timestamp not null, amount bigint"
    counts = replace(orders, name="counts", source=Files("landing/counts"), format=Json(columns))
    shares = replace(
        counts, name="shares", source=Files("landing/shares"), format=Json(columns.replace("bigint", "double"))
    )
    both = Selected("both", (counts, shares), select={"id": "id", "twice": "amount + amount"})
    for stream in (counts, shares):
        land_all(lake, stream, [{"id": "a", "at": at(1).isoformat(), "amount": 2**53 + 1}])
    with pytest.raises(DeclarationError, match="'twice' of selection 'both' is of type bigint in 'counts', and of"):
        drain(spark, lake, Pipeline(name="shop", streams=(counts, shares), operators=(both,)), now=lambda: NOW)


@pytest.mark.long
def test_a_union_follows_each_log_at_its_own_pace_and_is_delivered_step_by_step(
    spark: SparkSession, lake: Lake
) -> None:
    returns = replace(
        orders,
        name="returns",
        source=Files("landing/returns"),
        format=Json("id string not null, at timestamp not null, amount decimal(12,2), why string"),
    )
    both = Selected("both", (orders, returns), select=("id", "amount"), where="id <> 'no'")
    delivery = Delivery("out", both, JsonLines("out", by="none"), select={"id": "id", "from": "_origin.returns.path"})
    pipeline = Pipeline(name="shop", streams=(orders, returns), operators=(both,), deliveries=(delivery,))
    land_all(lake, orders, [order("a", 1, 1)], [order("no", 2, 2)])
    Path(returns.source.location(lake)).mkdir()
    drain(spark, lake, pipeline, now=lambda: NOW)
    # It begins once each of its logs has a batch.
    assert not delta.exists(lake.table(both))
    land_all(lake, returns, [order("a", 1, 1)])
    drain(spark, lake, pipeline, now=lambda: NOW)
    land_all(lake, returns, [order("b", 3, 2)])
    drain(spark, lake, pipeline, now=lambda: NOW)
    rows = runtime_of(both, lake).readable["current"](spark)
    assert tuples(rows, "_batch", "id", "amount") == [(0, "a", 1.0), (0, "a", 1.0), (1, "b", 2.0)]
    assert runtime_of(both, lake).filtered() == {"": FilterCounts(rows_in=4, kept=3)}
    assert all(finding.holds for finding in audit(spark, lake, pipeline))
    lines = [line for path in sorted(Path(lake.root, "out").rglob("*.json")) for line in path.read_text().splitlines()]
    assert [json.loads(line)["id"] for line in lines if '"id"' in line] == ["a", "a", "b"]

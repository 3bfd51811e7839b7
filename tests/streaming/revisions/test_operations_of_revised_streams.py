"""Upkeep of a stream with a key: nothing loses what came, or what follows from it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Delivery,
    Files,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.catalogs.entries import lake_entries
from streaming.log import batches_after, read_batches, read_log
from streaming.operations.doctor import examine
from streaming.operations.erasure import erasing
from streaming.operations.erasure.erasing import erase, preview_erasure
from streaming.operations.erasure.rows import Person
from streaming.operations.maintenance import maintain
from streaming.operations.repair import preview, repair
from streaming.operations.restore import restore_to
from streaming.operations.savepoint import savepoint
from streaming.revisions.steps import rows_now
from streaming.tables import delta
from tests.support.instants import NOW, T0, at
from tests.support.runs import read_current, run
from tidemark.testing import correct, land

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("order_id string, version bigint, at timestamp, customer string, amount bigint, op string"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    rules=(Rule("positive", "amount > 0"),),
    key=("order_id",),
    sequence="version",
    deletes="op = 'd'",
)
BY_MINUTE = Windowed("by_minute", ORDERS, Tumbling("1 minute"), {"orders": agg.count(), "paid": agg.sum("amount")})
PIPELINE = Pipeline(ORDERS, (BY_MINUTE,))


def order(order_id: str, version: int, seconds: float, customer: str, amount: int) -> dict[str, Any]:
    time = at(seconds).isoformat()
    return {"order_id": order_id, "version": version, "at": time, "customer": customer, "amount": amount, "op": "u"}


def stands(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    columns = ("order_id", "version", "customer", "amount")
    return [tuple(row) for row in rows_now(spark, lake, ORDERS).select(*columns).collect()]


def current(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    rows = read_current(spark, lake, BY_MINUTE).selectExpr("minute(window_start)", "orders", "paid")
    return sorted(tuple(row) for row in rows.collect())


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


@pytest.fixture
def filled(spark: SparkSession, lake: Lake) -> Lake:
    run(spark, lake, PIPELINE, [order("a", 1, 5, "ann", 10), order("b", 1, 6, "bea", 7)])
    run(spark, lake, PIPELINE, [order("a", 2, 5, "ann", 12), order("c", 1, 200, "bea", 1)])
    # The order goes to somebody else.
    run(spark, lake, PIPELINE, [order("b", 2, 6, "ann", 7), order("d", 1, 201, "eve", 2)])
    correct(spark, lake, BY_MINUTE, lambda: NOW)
    assert stands(spark, lake) == [("a", 2, "ann", 12), ("b", 2, "ann", 7), ("c", 1, "bea", 1), ("d", 1, "eve", 2)]
    assert current(spark, lake) == [(0, 2, 19)]
    return lake


@pytest.mark.long
def test_a_person_is_erased_with_every_revision_of_what_was_ever_theirs(spark: SparkSession, filled: Lake) -> None:
    person = Person("customer", "bea")
    preview = preview_erasure(spark, filled, PIPELINE, person)
    assert {name: preview.rows[f"orders/{name}"] for name in ("log", "changes")} == {"log": 3, "changes": 4}
    erase(spark, filled, PIPELINE, person, now=lambda: NOW)
    assert stands(spark, filled) == [("a", 2, "ann", 12), ("d", 1, "eve", 2)]
    assert current(spark, filled) == [(0, 1, 12)]
    assert broken(spark, filled) == []
    # It goes on from there.
    run(spark, filled, PIPELINE, [order("a", 3, 5, "ann", 20), order("e", 1, 300, "eve", 3)])
    correct(spark, filled, BY_MINUTE, lambda: NOW)
    assert current(spark, filled) == [(0, 1, 20), (3, 1, 2)]
    assert broken(spark, filled) == []


@pytest.mark.long
def test_an_erasure_that_died_and_takes_more_of_the_same_batches_counts_both(
    spark: SparkSession, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    batch 0   a v1 ann   b v1 bea        the first attempt takes b and c, and dies
    batch 1   a v2 ann   c v1 bea
    batch 2   b v2 ann   d v1 eve
    batch 3   a v3 bea   e v1 eve        the second one takes a, too
    """
    person = Person("customer", "bea")
    with monkeypatch.context() as dying:
        dying.setattr(erasing, "rebuild_held", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            erase(spark, filled, PIPELINE, person, now=lambda: NOW)
    run(spark, filled, PIPELINE, [order("a", 3, 5, "bea", 20), order("e", 1, 300, "eve", 3)])
    erase(spark, filled, PIPELINE, person, now=lambda: NOW)
    assert stands(spark, filled) == [("d", 1, "eve", 2), ("e", 1, "eve", 3)]
    came = read_batches(filled, ORDERS.revisions)
    assert {batch.number: batch.erased_valid for batch in came} == {0: 2, 1: 2, 2: 1, 3: 1}
    assert broken(spark, filled) == []


@pytest.mark.long
def test_a_lake_of_a_savepoint_goes_on_from_what_stood(spark: SparkSession, filled: Lake, tmp_path: Path) -> None:
    savepoint(filled, PIPELINE, "then", lambda: NOW)
    run(spark, filled, PIPELINE, [order("a", 3, 5, "ann", 99)])
    other = Lake(str(tmp_path / "other"))
    restore_to(filled, PIPELINE, "then", other)
    assert stands(spark, other)[0] == ("a", 2, "ann", 12)
    # What had not been taken yet waits there, too.
    run(spark, other, PIPELINE)
    assert stands(spark, other)[0] == ("a", 3, "ann", 99)
    land(other.path("landing/orders"), [order("a", 4, 5, "ann", 1)], name="later.json")
    run(spark, other, PIPELINE)
    signs = read_log(spark, other, ORDERS).where("_batch > 2").selectExpr("_batch", "_origin.change", "amount")
    assert sorted(tuple(row) for row in signs.collect()) == [(3, -1, 12), (3, 1, 99), (4, -1, 99), (4, 1, 1)]
    assert broken(spark, other) == []


@pytest.mark.long
def test_a_rejected_revision_that_is_repaired_takes_its_place(spark: SparkSession, filled: Lake) -> None:
    run(spark, filled, PIPELINE, [order("a", 7, 5, "ann", -5)])
    assert stands(spark, filled)[0] == ("a", 2, "ann", 12)
    lax = replace(ORDERS, rules=())
    pipeline = Pipeline(lax, (replace(BY_MINUTE, of=lax),))
    (window,) = preview(spark, filled, pipeline, lambda: NOW).changes["by_minute"]
    assert (window.start, window.before, window.after) == (T0, {"orders": 2, "paid": 19}, {"orders": 2, "paid": 2})
    assert repair(spark, filled, pipeline, lambda: NOW).repaired == 1
    run(spark, filled, pipeline)
    assert stands(spark, filled)[0] == ("a", 7, "ann", -5)
    correct(spark, filled, pipeline.views[0], lambda: NOW)
    assert current(spark, filled) == [(0, 2, 2)]
    assert broken(spark, filled, pipeline) == []


@pytest.mark.long
def test_the_preview_of_a_repair_foretells_only_revisions_that_take_a_place(spark: SparkSession, filled: Lake) -> None:
    """
    00:05  a v1  -5  rejected; older than a v2, which stands
    00:07  e v1  -3  rejected; a new order
    00:06  b v3  -1  rejected; deletes b
    """
    gone = {**order("b", 3, 6, "ann", -1), "op": "d"}
    run(spark, filled, PIPELINE, [order("a", 1, 5, "ann", -5), order("e", 1, 7, "eve", -3), gone])
    lax = replace(ORDERS, rules=())
    pipeline = Pipeline(lax, (replace(BY_MINUTE, of=lax),))
    foretold = preview(spark, filled, pipeline, lambda: NOW)
    (window,) = foretold.changes["by_minute"]
    assert foretold.repaired == 2, "a delete needs no valid values, so it was taken when it came"
    assert (window.before, window.after) == ({"orders": 1, "paid": 12}, {"orders": 2, "paid": 9})


@pytest.mark.long
def test_upkeep_changes_nothing_and_a_healthy_lake_is_called_so(spark: SparkSession, filled: Lake) -> None:
    before = stands(spark, filled), current(spark, filled)
    assert examine(filled, PIPELINE) == []
    later = NOW + timedelta(days=60)
    maintained = {each.table for each in maintain(filled, PIPELINE, now=lambda: later)}
    assert {"log", "changes", "batches", "changes_batches"} <= maintained
    assert len(batches_after(filled, ORDERS, -1)) == 3
    assert (stands(spark, filled), current(spark, filled)) == before
    run(spark, filled, PIPELINE, [order("a", 3, 5, "ann", 20), order("e", 1, 300, "eve", 3)])
    correct(spark, filled, BY_MINUTE, lambda: NOW)
    assert current(spark, filled) == [(0, 2, 27), (3, 2, 3)]
    assert broken(spark, filled) == []


@pytest.mark.long
def test_both_logs_are_in_the_catalog_and_say_which_is_which(spark: SparkSession, filled: Lake) -> None:
    entries = {entry.name: entry.comment for entry in lake_entries(filled, PIPELINE)}
    assert "every row that has arrived" in entries["orders_log"]
    assert "taken back" in entries["orders_row_changes"]


def test_random_updates_of_a_year_are_few_files_a_batch(spark: SparkSession, lake: Lake) -> None:
    days = [order(f"o{day}", 1, day * 86_400, "ann", 1) for day in range(0, 28)]
    run(spark, lake, PIPELINE, days)
    files = delta.opened(lake.log(ORDERS)).get_add_actions().num_rows
    run(spark, lake, PIPELINE, [order(f"o{day}", 2, day * 86_400, "ann", 2) for day in range(0, 28)])
    assert delta.opened(lake.log(ORDERS)).get_add_actions().num_rows <= 2 * files <= 8


@pytest.mark.long
def test_rejected_revisions_are_delivered_once_each(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    delivery = Delivery("refused", ORDERS, JsonLines(str(tmp_path / "refused")), what="rejected")
    pipeline = Pipeline(ORDERS, (BY_MINUTE,), deliveries=(delivery,))
    run(spark, lake, pipeline, [order("a", 1, 5, "ann", -5), order("b", 1, 5, "ann", 5)])
    run(spark, lake, pipeline, [order("c", 1, 5, "ann", -6), order("b", 2, 5, "ann", 6)])
    files = (file for file in (tmp_path / "refused").rglob("*") if file.is_file() and not file.name.startswith("."))
    written = [line for file in files for line in file.read_text().splitlines()]
    assert sorted(re.findall(r"amount\W+?(-[0-9])", " ".join(written))) == ["-5", "-6"], written
    assert broken(spark, lake, pipeline) == []

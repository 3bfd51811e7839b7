"""Upkeep of histories, and whoever reads them: deliveries, streams, builds anew, erasures, older batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Debezium,
    Delivery,
    Derived,
    Files,
    History,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import DeclarationError
from streaming.catalogs.entries import lake_entries
from streaming.declare import STATE
from streaming.operations.doctor import examine
from streaming.operations.erasure.erasing import erase
from streaming.operations.erasure.rows import Person
from streaming.operations.maintenance import maintain
from streaming.operations.rebuild import rebuild
from streaming.operations.restore import restore_to
from streaming.operations.savepoint import savepoint
from streaming.operators.runtime import frame, runtime_of
from streaming.reading.selection import Choice
from streaming.reading.stored import stored_rows
from streaming.tables import delta
from tests.support.customers import CUSTOMERS
from tests.support.instants import NOW, at, ms
from tests.support.runs import read_current, run
from tidemark.testing import correct, land

HISTORY = History("customer_history", CUSTOMERS, track=("segment",))
PIPELINE = Pipeline(CUSTOMERS, (HISTORY,))

Told = list[tuple[Any, ...]]


def customer(id: str, version: int, seconds: float, segment: str | None, *, gone: bool = False) -> dict[str, Any]:
    return {"id": id, "version": version, "at": at(seconds).isoformat(), "segment": segment, "gone": gone}


def intervals(spark: SparkSession, lake: Lake, history: History = HISTORY) -> Told:
    begins = int(at(0).timestamp())
    bounds = (f"unix_seconds({name}) - {begins}" for name in ("valid_from", "valid_to"))
    return [tuple(row) for row in frame(spark, lake, history).selectExpr("id", *bounds, "segment").collect()]


def broken(spark: SparkSession, lake: Lake, pipeline: Pipeline = PIPELINE) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, pipeline) if not finding.holds]


THEN: Told = [("a", 10, None, "new"), ("b", 20, None, "new")]
SPLIT: Told = [("a", 10, 40, "new"), ("a", 40, None, "gold"), ("b", 20, None, "new")]


@pytest.fixture
def filled(spark: SparkSession, lake: Lake) -> Lake:
    run(spark, lake, PIPELINE, [customer("a", 1, 10, "new"), customer("b", 1, 20, "new")])
    run(spark, lake, PIPELINE, [customer("a", 2, 40, "gold")])
    assert intervals(spark, lake) == SPLIT
    return lake


def test_a_history_is_read_without_spark_and_as_of_an_older_batch(spark: SparkSession, filled: Lake) -> None:
    shown = stored_rows(filled, PIPELINE, HISTORY)
    assert shown is not None and Choice(shown).table().num_rows == 3
    changes = stored_rows(filled, PIPELINE, HISTORY, "signed")
    assert changes is not None and Choice(changes).table().num_rows == 5
    assert "another value of segment begins one, at its at" in runtime_of(HISTORY, filled).explain(spark)["results"]
    older = filled.as_of({"customers": 0})
    assert intervals(spark, older) == THEN
    assert broken(spark, older) == []


@pytest.mark.long
def test_a_history_that_is_built_anew_is_the_same_and_its_savepoint_goes_on(
    spark: SparkSession, filled: Lake, tmp_path: Path
) -> None:
    savepoint(filled, PIPELINE, "then", lambda: NOW)
    other = replace(HISTORY, track=None)
    rebuild(spark, filled, Pipeline(CUSTOMERS, (other,)), other, now=lambda: NOW)
    run(spark, filled, Pipeline(CUSTOMERS, (other,)), [customer("a", 3, 50, "gold")])
    assert intervals(spark, filled) == [*SPLIT[:1], ("a", 40, 50, "gold"), ("a", 50, None, "gold"), *SPLIT[2:]]
    assert broken(spark, filled, Pipeline(CUSTOMERS, (other,))) == []
    elsewhere = Lake(str(tmp_path / "other"))
    restore_to(filled, PIPELINE, "then", elsewhere)
    assert intervals(spark, elsewhere) == SPLIT
    land(elsewhere.path("landing/customers"), [customer("b", 2, 30, None, gone=True)], name="later.json")
    run(spark, elsewhere, PIPELINE)
    assert intervals(spark, elsewhere)[2] == ("b", 20, 30, "new")
    assert broken(spark, elsewhere) == []


@pytest.mark.long
def test_a_person_is_erased_from_a_history_and_upkeep_changes_nothing(spark: SparkSession, filled: Lake) -> None:
    assert examine(filled, PIPELINE) == []
    maintain(filled, PIPELINE, now=lambda: NOW + timedelta(days=60))
    assert intervals(spark, filled) == SPLIT
    names = {entry.name for entry in lake_entries(filled, PIPELINE)}
    assert {"customer_history", "customer_history_current", "customer_history_changes"} <= names
    erase(spark, filled, PIPELINE, Person("id", "a"), now=lambda: NOW)
    assert intervals(spark, filled) == SPLIT[2:]
    run(spark, filled, PIPELINE, [customer("b", 2, 50, "gold")])
    assert intervals(spark, filled) == [("b", 20, 50, "new"), ("b", 50, None, "gold")]
    assert broken(spark, filled) == []


@pytest.mark.long
def test_a_late_change_is_delivered_as_what_it_makes_of_the_intervals(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    delivery = Delivery("told", HISTORY, JsonLines(str(tmp_path / "told")), what="current")
    pipeline = Pipeline(CUSTOMERS, (HISTORY,), deliveries=(delivery,))
    run(spark, lake, pipeline, [customer("a", 1, 10, "new"), customer("a", 3, 50, "gold")])
    run(spark, lake, pipeline, [customer("a", 2, 30, "silver")])
    files = sorted(file for file in (tmp_path / "told").rglob("*") if file.is_file() and not file.name.startswith("."))
    told = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    standing: dict[str, tuple[Any, ...]] = {}
    for each in (each for each in told if "_change" in each):
        standing[each["valid_from"]] = (each.get("segment"), each.get("valid_to"), each["_change"])
    assert [value[0] for _, value in sorted(standing.items())] == ["new", "silver", "gold"]
    assert {value[2] for value in standing.values()} == {"upsert"}
    ends = [value[1] for _, value in sorted(standing.items())]
    assert ends[:2] == sorted(standing)[1:] and ends[2] is None
    assert broken(spark, lake, pipeline) == []


@pytest.mark.long
def test_a_stream_follows_what_is_current_of_a_history(spark: SparkSession, filled: Lake) -> None:
    """Of how many intervals each segment is, by the day on which they began; a late change moves one of them."""
    stream = Stream(
        name="intervals",
        source=Table(HISTORY, what="current"),
        format=Json("id string, segment string, valid_from timestamp"),
        event_time="valid_from",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    )
    counted = Windowed("counted", stream, Tumbling("1 day"), {"intervals": agg.count()}, by=("segment",))
    follower = Pipeline(stream, (counted,))

    def total() -> list[tuple[Any, ...]]:
        return sorted(
            tuple(row) for row in read_current(spark, filled, counted).select("segment", "intervals").collect()
        )

    run(spark, filled, PIPELINE, [customer("z", 1, 3 * 86_400, "old")])
    run(spark, filled, follower)
    assert total() == [("gold", 1), ("new", 2)]
    run(spark, filled, PIPELINE, [customer("b", 0, 30, "gold")])
    run(spark, filled, follower)
    correct(spark, filled, counted, lambda: NOW)
    assert total() == [("gold", 2), ("new", 2)]
    assert broken(spark, filled, follower) == []


def test_a_history_has_no_first_results_to_be_followed_and_tells_no_clock() -> None:
    stream = Stream(
        name="intervals",
        source=Table(HISTORY, what="current"),
        format=Json("id string, valid_from timestamp"),
        event_time="valid_from",
        clock=BoundedOutOfOrderness("10 seconds"),
    )
    with pytest.raises(DeclarationError, match="tells no watermark"):
        replace(stream, clock=Derived())
    with pytest.raises(DeclarationError, match="nothing that a history has; use 'current'"):
        Delivery("told", HISTORY, JsonLines("out"), what="first")


UNAVAILABLE = "__debezium_unavailable_value"
ACCOUNTS = Stream(
    name="accounts",
    source=Files("landing/accounts"),
    format=Debezium(Json("id bigint not null, owner string, notes string, at_ms bigint")),
    derived={"opened": "timestamp_millis(at_ms)", "length": "length(notes)"},
    event_time="opened",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("id",),
)
OWNERS = History("owners", ACCOUNTS, since="change_at", track=("owner", "notes"))


def change(op: str, lsn: int, seconds: float, owner: str | None, notes: str | None) -> dict[str, Any]:
    told = {"connector": "postgresql", "lsn": lsn, "ts_ms": ms(at(seconds)), "db": "bank", "table": "accounts"}
    row = {"id": 1, "owner": owner, "notes": notes, "at_ms": ms(at(5))}
    before, after = (None, row) if op != "d" else ({"id": 1}, None)
    return {"before": before, "after": after, "op": op, "ts_ms": ms(at(seconds)), "source": told}


@pytest.mark.long
def test_a_value_that_was_not_sent_is_that_of_the_revision_before_also_where_that_comes_late(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:10  c  ann  long        |------|
    00:20  u  bea  (not sent)         |-----------|
    00:30  u  eve  (not sent)                     |------x
    00:40  d
    00:50  u  ann  (not sent)                                |--->     nothing stood before
    00:25  u  bea  longer                   |-----| late: what eve has, too, is longer
    """
    pipeline = Pipeline(ACCOUNTS, (OWNERS,))

    def owners() -> Told:
        begins = int(at(0).timestamp())
        bounds = (f"unix_seconds({name}) - {begins}" for name in ("valid_from", "valid_to"))
        return [
            tuple(row) for row in frame(spark, lake, OWNERS).selectExpr(*bounds, "owner", "notes", "length").collect()
        ]

    run(spark, lake, pipeline, [change("c", 1, 10, "ann", "long"), change("u", 2, 20, "bea", UNAVAILABLE)])
    run(spark, lake, pipeline, [change("u", 4, 30, "eve", UNAVAILABLE), change("d", 5, 40, None, None)])
    run(spark, lake, pipeline, [change("u", 6, 50, "ann", UNAVAILABLE)])
    first, last = (10, 20, "ann", "long", 4), (50, None, "ann", None, None)
    assert owners() == [first, (20, 30, "bea", "long", 4), (30, 40, "eve", "long", 4), last]
    run(spark, lake, pipeline, [change("u", 3, 25, "bea", "longer")])
    assert owners() == [
        first,
        (20, 25, "bea", "long", 4),
        (25, 30, "bea", "longer", 6),
        (30, 40, "eve", "longer", 6),
        last,
    ]
    assert broken(spark, lake, pipeline) == []


def state_files(lake: Lake) -> set[str]:
    return {*map(str, delta.opened(lake.table(HISTORY, STATE)).get_add_actions()["path"].to_pylist())}


@pytest.mark.long
def test_revisions_that_came_leave_the_files_of_those_before_as_they_are(spark: SparkSession, lake: Lake) -> None:
    run(spark, lake, PIPELINE, [customer("a", 1, 10, "new")])
    before = state_files(lake)
    run(spark, lake, PIPELINE, [customer("a", 2, 30, "gold")])
    assert before < state_files(lake)
    assert intervals(spark, lake) == [("a", 10, 30, "new"), ("a", 30, None, "gold")]


@pytest.mark.long
def test_many_files_of_revisions_become_one(spark: SparkSession, lake: Lake) -> None:
    counts = []
    for number in range(20):
        run(spark, lake, PIPELINE, [customer("a", number, 10 * number, f"s{number}")])
        counts.append(len(state_files(lake)))
    assert counts[:2] == [1, 2] and max(counts) < 20
    assert len(intervals(spark, lake)) == delta.read(spark, lake.table(HISTORY, STATE)).count() == 20
    assert broken(spark, lake) == []

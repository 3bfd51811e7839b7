"""Joins on Spark: against an oracle at cuts and kills, laws that see what is wrong, chains and deliveries."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Keyed, Lake, Pipeline, Stream, Table, drain
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, FencedError
from streaming.declare.delivery import Delivery
from streaming.joins import operator as joins
from streaming.joins.operator import JoinedRuntime
from streaming.log import batches_after
from streaming.log import read as log_reads
from streaming.operations.rebuild import rebuild
from streaming.operators import runtime as runtimes
from streaming.operators.runtime import runtime_of
from streaming.sinks.files import JsonLines
from streaming.tables import delta
from tests.streaming.joins import oracle
from tests.streaming.joins.oracle import Row
from tests.support.delivering import Courier
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import tuples
from tests.support.seeds import draws, eventful

left = Stream(
    name="left_rows",
    source=Files("landing/left_rows", files_per_batch=1),
    format=Json("n bigint not null, key string, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)
right = replace(left, name="right_rows", source=Files("landing/right_rows", files_per_batch=1))
LOWER, UPPER = timedelta(seconds=-20), timedelta(seconds=10)
both = Joined(
    "both", left, right, ("key",), ("-20 seconds", "10 seconds"), "outer", where="(left_n + right_n) % 7 <> 0"
)
BATCHES = 6
Sides = list[list[list[Row]]]


def of_both(*operators: Joined) -> Pipeline:
    return Pipeline(name="joining", streams=(left, right), operators=operators)


joining = of_both(both)


def payloads(batches: Sequence[Sequence[Row]]) -> Iterator[list[dict[str, Any]]]:
    for batch in batches:
        yield [{"n": row.n, "key": row.key, "at": row.at.isoformat()} for row in batch]


def meets(one: Row, other: Row) -> bool:
    return (one.n + other.n) % 7 != 0


def sides(number: int) -> Sides:
    return [list(oracle.drawn(draws("join", first, number), BATCHES, first)) for first in (100, 200)]


def expected(of: Sides) -> dict[str, set[tuple[int | None, int | None]]]:
    """The numbers of both rows: pairs, rows that were told of alone, and what is current."""
    (lefts, left_mark), (rights, right_mark) = map(oracle.log_of, of)
    assert left_mark is not None and right_mark is not None
    clock, pairs = min(left_mark, right_mark), oracle.pairs(lefts, rights, LOWER, UPPER, meets)
    numbered: set[tuple[int | None, int | None]] = {(one.n, other.n) for one, other in pairs}
    unmatched_lefts, still = oracle.unmatched(
        lefts, lambda row: {other for one, other in pairs if one == row}, UPPER, clock
    )
    unmatched_rights, also_still = oracle.unmatched(
        rights, lambda row: {one for one, other in pairs if other == row}, -LOWER, clock
    )
    alone, lonely = set[tuple[int | None, int | None]](), set[tuple[int | None, int | None]]()
    alone |= {(row.n, None) for row in unmatched_lefts} | {(None, row.n) for row in unmatched_rights}
    lonely |= {(row.n, None) for row in still} | {(None, row.n) for row in also_still}
    return {"pairs": numbered, "unmatched": alone, "current": numbered | lonely}


def told(spark: SparkSession, lake: Lake, of: Joined) -> dict[str, Any]:
    """The same of the tables; a row that is there twice is told."""
    readable = runtime_of(of, lake).readable
    numbers = {
        what: [tuple(row) for row in readable[what](spark).select("left_n", "right_n").collect()] for what in EXPECTED
    }
    return {what: set(rows) if len(set(rows)) == len(rows) else rows for what, rows in numbers.items()}


def shows_all(of: Sides) -> bool:
    """Late partners have voided rows of both sides that were told of alone; some of these are alone for good."""
    told = expected(of)
    voided = told["unmatched"] - told["current"]
    return bool(told["current"] & told["unmatched"]) and {one is None for one, _ in voided} == {True, False}


LEFT, RIGHT = SIDES = eventful(sides, shows_all)
EXPECTED = expected(SIDES)


def follow(spark: SparkSession, lake: Lake, of: Joined) -> None:
    for step in runtime_of(of, lake).steps(spark, lambda: NOW):
        step.run()


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with the batches in both logs, which were joined in one step."""
    lake = Lake(str(tmp_path_factory.mktemp("logged") / "lake"))
    land_all(lake, left, *payloads(LEFT))
    land_all(lake, right, *payloads(RIGHT))
    drain(spark, lake, joining, now=lambda: NOW)
    return lake


@pytest.fixture
def copied(logged: Lake, tmp_path: Path) -> Lake:
    """A copy of it, which a test may change."""
    shutil.copytree(logged.root, tmp_path / "copy", ignore=shutil.ignore_patterns("landing"))
    return Lake(str(tmp_path / "copy"))


def test_one_step_tells_what_every_row_against_every_other_one_tells(spark: SparkSession, logged: Lake) -> None:
    assert told(spark, logged, both) == EXPECTED
    voided = EXPECTED["unmatched"] - EXPECTED["current"]
    assert EXPECTED["pairs"] and EXPECTED["current"] & EXPECTED["unmatched"], "every table has something to lose"
    assert {one is None for one, _ in voided} == {True, False}, "late partners have voided rows of both sides"
    assert [finding for finding in audit(spark, logged, joining) if not finding.holds] == []


def test_rows_that_may_still_find_a_partner_wait(logged: Lake) -> None:
    (lefts, left_mark), (rights, right_mark) = oracle.log_of(LEFT), oracle.log_of(RIGHT)
    assert left_mark is not None and right_mark is not None
    clock = min(left_mark, right_mark)
    open_left = sum(row.at + UPPER >= clock for row in lefts)
    open_right = sum(row.at - LOWER >= clock for row in rights)
    assert 0 < open_left < len(lefts) and 0 < open_right < len(rights)
    waiting = {kind: runtime_of(replace(both, kind=kind), logged).waiting() for kind in ("outer", "left", "inner")}
    assert waiting == {"outer": open_left + open_right, "left": open_left, "inner": 0}
    in_time = sum(row.stamp is None or row.at >= row.stamp for row in lefts)
    log, newest = log_reads.LogFiles(logged, left), batches_after(logged, left, -1)[-1].number
    assert log.count_since(at(0) - timedelta(days=1), newest) == len(lefts) > in_time
    assert log.count_since(at(0) - timedelta(days=1), newest, late=False) == in_time


@pytest.mark.long
def test_steps_at_any_cuts_that_are_killed_anywhere_tell_the_same(
    spark: SparkSession, logged: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, of = Random(1), replace(both, name="cut")
    runtime = runtime_of(of, logged)
    assert isinstance(runtime, JoinedRuntime)
    waiting = {stream.name: batches_after(logged, stream, -1) for stream in of.reads}
    steps = runtime._steps_on(spark)
    for few in (0, joins._FEW):
        cut = {name: random.randint(1, 2) for name in waiting}
        with monkeypatch.context() as limited:
            limited.setattr(joins, "_FEW", few)
            steps.step({name: batches[: cut[name]] for name, batches in waiting.items()}, lambda: NOW)
        waiting = {name: batches[cut[name] :] for name, batches in waiting.items()}
    # Before both commits of a step, and between them.
    for kill in (1, 2):
        with monkeypatch.context() as dying:
            killed_at(kill, dying)
            with pytest.raises(Killed):
                steps.step({name: batches[:1] for name, batches in waiting.items()}, lambda: NOW)
    monkeypatch.setattr(runtimes, "ROWS_PER_CORE", 2)
    follow(spark, logged, of)
    assert told(spark, logged, of) == EXPECTED


def test_a_stream_joins_itself_and_rows_that_came_late_may_be_left_out(spark: SparkSession, logged: Lake) -> None:
    itself = Joined("itself", left, left, ("key",), ("0 seconds", "30 seconds"), where="left_n < right_n")
    in_time = Joined("in_time", left, right, ("key",), ("-20 seconds", "10 seconds"), late="drop")
    for of in (itself, in_time):
        follow(spark, logged, of)
    rows, _ = oracle.log_of(LEFT)
    met = oracle.pairs(rows, rows, timedelta(), timedelta(seconds=30), lambda one, other: one.n < other.n)
    assert tuples(runtime_of(itself, logged).readable["current"](spark), "left_n", "right_n") == sorted(
        (one.n, other.n) for one, other in met
    )
    others, _ = oracle.log_of(RIGHT)
    first, second = on_time = [
        [row for row in side if row.stamp is None or row.at >= row.stamp] for side in (rows, others)
    ]
    pairs = tuples(runtime_of(in_time, logged).readable["current"](spark), "left_n", "right_n")
    assert pairs == sorted((one.n, other.n) for one, other in oracle.pairs(first, second, LOWER, UPPER))
    late = runtime_of(in_time, logged).readable["late"](spark)
    assert late.count() == len(rows) + len(others) - sum(map(len, on_time))
    assert all(finding.holds for finding in audit(spark, logged, of_both(itself, in_time)))


@pytest.mark.long
def test_a_very_late_row_reads_the_files_near_it_and_none_because_another_row_in_it_was_late(
    spark: SparkSession, copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each batch has a row from long before the others, so that the bounds of all its files span the first hour.
    hours = [[Row(900 + hour, "c", at(hour * 3_600)), Row(950 + hour, "z", at(hour * 60))] for hour in range(1, 9)]
    Path(left.source.location(copied)).mkdir(parents=True)
    land_all(copied, right, *payloads(hours))
    nearby = replace(both, name="near", kind="inner")
    near = of_both(nearby)
    drain(spark, copied, near, now=lambda: NOW)
    read: list[int] = []
    reading = log_reads.read_files

    def counting(spark: SparkSession, table: DeltaTable, uri: str, paths: Sequence[str], **named: Any) -> Any:
        read.append(len(paths))
        return reading(spark, table, uri, paths, **named)

    def files_read(*rows: Row) -> int:
        read.clear()
        land_all(copied, left, *payloads([rows]))
        drain(spark, copied, near, now=lambda: NOW)
        return sum(read)

    monkeypatch.setattr(log_reads, "read_files", counting)
    usual = files_read(Row(998, "c", at(8 * 3_600)))
    late = files_read(Row(996, "c", at(7 * 3_600)), Row(999, "c", at(3_600)))
    # The new rows, and the files with partners of each of them.
    assert (usual, late) == (1 + 1, 1 + 2)
    pairs = tuples(runtime_of(nearby, copied).readable["current"](spark), "left_n", "right_n")
    assert {(998, 908), (996, 907), (999, 901)} <= set(pairs)


def test_a_step_looks_at_each_table_once_before_it_writes_it(
    spark: SparkSession, copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = replace(both, name="counted")
    steps = runtime_of(of, copied)._steps_on(spark)  # type: ignore[attr-defined]
    (behind,) = steps.pieces(10_000)
    steps.step({name: batches[:3] for name, batches in behind.items()}, lambda: NOW)
    uris = [copied.table(of, suffix) for suffix in ("", "unmatched")]
    opened: list[str] = []
    opening = DeltaTable.__init__

    def counting(table: DeltaTable, uri: Any, *given: Any, **named: Any) -> None:
        opened.append(str(uri))
        opening(table, uri, *given, **named)

    monkeypatch.setattr(DeltaTable, "__init__", counting)
    (rest,) = steps.pieces(10_000)
    assert [opened.count(uri) for uri in uris] == [1, 1]
    before = [delta.row_count(delta.opened(uri)) for uri in uris]
    opened.clear()
    written = steps.step(rest, lambda: NOW)
    # Once to see where it is, once to commit.
    assert [opened.count(uri) for uri in uris] == [2, 2]
    more = [delta.row_count(delta.opened(uri)) - rows for uri, rows in zip(uris, before, strict=True)]
    assert all(more) and written.rows == sum(more)


@pytest.mark.long
def test_what_is_missing_in_a_table_is_seen_by_the_audit(spark: SparkSession, copied: Lake) -> None:
    voided = EXPECTED["unmatched"] - EXPECTED["current"]
    (number, _) = next(row for row in voided if row[0] is not None)
    for suffix, condition in (("", "true"), ("unmatched", f"left_n = {number}")):
        table = DeltaTable(copied.table(both, suffix))
        table.alter.set_table_properties({"delta.appendOnly": "false"})
        table.delete(condition)
    broken = {(each.law, each.subject) for each in audit(spark, copied, joining) if each.broken}
    assert broken == {
        ("cuts", "both"),
        ("first result", "both_unmatched"),
        ("convergence", "both"),
        ("published", "both"),
    }


@pytest.mark.long
def test_a_process_that_was_away_is_refused_and_changed_bounds_are_built_anew(
    spark: SparkSession, copied: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(right.source.location(copied)).mkdir(parents=True)
    land_all(copied, left, *payloads([[Row(997, "d", at(200))]]))
    other = replace(both, name="other")
    drain(spark, copied, of_both(other), now=lambda: NOW)
    steps = runtime_of(both, copied)._steps_on(spark)  # type: ignore[attr-defined]
    (batches,) = steps.pieces(1_000)
    finding = steps._pairs

    def overtaken(*given: Any) -> Any:
        follow(spark, copied, both)
        return finding(*given)

    monkeypatch.setattr(steps, "_pairs", overtaken)
    with pytest.raises(FencedError, match="another process has taken over"):
        steps.step(batches, lambda: NOW)
    assert told(spark, copied, both) == told(spark, copied, other)
    # What it was about to write is there by now.
    assert steps.step(batches, lambda: NOW).rows == 0
    wider = replace(both, between=("-20 seconds", "1 hour"))
    with pytest.raises(ChangedDeclaration, match="between was -20 seconds, 10 seconds and is -20 seconds, 1 hour"):
        runtime_of(wider, copied).check()
    runtime_of(replace(both, every="1 minute", description="Other words."), copied).check()
    changed = of_both(wider)
    rebuild(spark, copied, changed, wider, now=lambda: NOW)
    assert told(spark, copied, wider)["pairs"] > EXPECTED["pairs"]
    assert "built anew 1 time" in runtime_of(wider, copied).explain(spark)["position"]


def number_pairs(key: Any, row: Any) -> None:
    key.met = (key.met or 0) + 1
    key.emit(number=key.met)


@pytest.mark.long
def test_joins_chain_to_three_streams_and_functions_and_are_delivered_once(spark: SparkSession, copied: Lake) -> None:
    third = replace(left, name="third_rows", source=Files("landing/third_rows"))
    followed = Stream(
        name="met",
        source=Table(both),
        format=Json("key string, left_n bigint, right_n bigint"),
        derived={"met_at": "_origin.at"},
        event_time="met_at",
        clock=BoundedOutOfOrderness("1 minute"),
    )
    three = Joined("three", followed, third, ("key",), ("-1 second", "1 second"))
    (lefts, _), (rights, _) = oracle.log_of(LEFT), oracle.log_of(RIGHT)
    pairs = oracle.pairs(lefts, rights, LOWER, UPPER, meets)
    met = min(max(one.at, other.at) for one, other in pairs)
    thirds = [Row(1, "a", met), Row(2, "b", met)]
    land_all(copied, third, *payloads([thirds]))
    numbered = Keyed("numbered", followed, ("key",), "met bigint", "number bigint", number_pairs)
    chain = Pipeline(name="chain", streams=(followed, third), operators=(three, numbered))
    drain(spark, copied, chain, now=lambda: NOW)
    wanted = [
        (one.n, other.n, row.n)
        for one, other in pairs
        for row in thirds
        if row.key == one.key and abs(max(one.at, other.at) - row.at) <= timedelta(seconds=1)
    ]
    assert wanted
    triples = tuples(runtime_of(three, copied).readable["current"](spark), "left_n", "right_n", "n")
    assert sorted(triples) == sorted(wanted)
    numbers = tuples(runtime_of(numbered, copied).readable["current"](spark), "key", "number")
    of_keys = Counter(one.key for one, _ in pairs)
    assert sorted(numbers) == sorted((key, number + 1) for key, met in of_keys.items() for number in range(met))

    for output, what in (("", "pairs"), ("unmatched", "unmatched")):
        delivery = Delivery(
            f"{what}_out", both, JsonLines(what, by="none"), output=output, select=("left_n", "right_n")
        )
        courier = Courier(spark, copied, delivery)
        assert (courier.deliver(), courier.deliver()) == (1, 0)
        paths = [path for path in Path(copied.root, what).rglob("*.json") if path.parent.name != "_delivered"]
        lines = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
        arrived = [(line.get("left_n"), line.get("right_n")) for line in lines]
        assert (len(arrived), set(arrived)) == (len(EXPECTED[what]), EXPECTED[what])


@pytest.mark.long
def test_a_join_whose_stream_gets_a_column_is_published_before_any_of_its_tables_has_rows_with_it(
    spark: SparkSession, lake: Lake
) -> None:
    """```
    left, orders    k@1=1    k@50=3          k@100=5 x
    right           k@2=2    k@40=4                     k@101=6
    ```
    """

    def with_columns(columns: str) -> Pipeline:
        lefts = replace(left, format=Json(columns))
        orders = replace(lefts, name="orders", source=Files("landing/orders"), key=("n",), sequence="n")
        outer = replace(both, left=lefts, where=None)
        signed = Joined("signed", orders, right, both.on, both.between)
        return Pipeline(name="joining", streams=(lefts, orders, right), operators=(outer, signed))

    def go_on(pipeline: Pipeline, lefts: Sequence[dict[str, Any]], rights: Sequence[dict[str, Any]]) -> None:
        for stream, rows in zip(pipeline.streams, (lefts, lefts, rights), strict=True):
            if rows:
                land_all(lake, stream, rows)
        drain(spark, lake, pipeline, now=lambda: NOW)
        assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []

    def row(n: int, seconds: float, **more: str) -> dict[str, Any]:
        return {"n": n, "key": "k", "at": at(seconds).isoformat(), **more}

    def told(of: str, suffix: str) -> list[tuple[Any, ...]]:
        (joined,) = (each for each in after.operators if each.name == of)
        rows = delta.read(spark, lake.table(joined, suffix))
        sign = ["_change"] if "_change" in rows.columns else []
        return tuples(rows, "left_n", "right_n", "note", *sign)

    columns = "n bigint not null, key string, at timestamp not null"
    before, after = with_columns(columns), with_columns(f"note string, {columns}")
    go_on(before, [row(1, 1), row(3, 50)], [row(2, 2), row(4, 40)])
    drain(spark, lake, after, now=lambda: NOW)
    # The clock of the right rows stands: there is no pair, and no row is due.
    go_on(after, [row(5, 100, note="x")], [])
    for of in ("both", "signed"):
        assert told(of, "current") == [(1, 2, None), (3, 4, None)]
    go_on(after, [], [row(6, 101)])
    pairs, alone = [(1, 2, None), (3, 4, None), (5, 6, "x")], list[tuple[Any, ...]]()
    for of in ("both", "signed"):
        assert told(of, "current") == pairs
        assert told(of, "changes") == [(*pair, 1) for pair in pairs]
    assert told("both", "") == pairs and told("both", "unmatched") == alone

"""Window joins and co-groups on Spark: steps that are cut or killed anywhere, late rows on either side."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Files,
    Json,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Table,
    Tumbling,
    Windowed,
    WindowJoined,
    agg,
    drain,
)
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, FencedError, FunctionError
from streaming.declare.delivery import Delivery
from streaming.declare.operator import Operator
from streaming.declare.two_sided import TwoSided
from streaming.lake.lake import Lake
from streaming.log.read import read_log, valid
from streaming.operations.rebuild import rebuild
from streaming.operations.undeclared import undeclared_tables
from streaming.operators import runtime as runtimes
from streaming.operators.progress import Progress
from streaming.operators.runtime import runtime_of
from streaming.sinks.files import JsonLines
from streaming.views.steps import FixedSteps
from tests.streaming.joins import windows_oracle as oracle
from tests.streaming.joins.windows_oracle import Row, Side
from tests.support.feeds import land_all
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import tuples
from tests.support.seeds import draws, eventful
from tidemark.testing import correct

DELAYS = {"ours": 2, "theirs": 6}


def unequal(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    if len(left) != len(right):
        # Equal times have an order of their own in each log.
        ordered = [sorted(rows, key=lambda row: (row.at, row.v)) for rows in (left, right)]
        yield {name: [row.v for row in rows] for name, rows in zip(("a", "b"), ordered, strict=True)}


ours, theirs = (
    Stream(
        name,
        Files(f"landing/{name}", files_per_batch=1),
        Json(f"{key} string, at timestamp not null, v string"),
        "at",
        BoundedOutOfOrderness(f"{DELAYS[name]} seconds"),
    )
    for name, key in (("ours", "k"), ("theirs", "id"))
)
CLOCK = BoundedOutOfOrderness("0 seconds")
ON = {"k": "id"}
VALUES = {"a": "left_v", "b": "right_v"}
outer = WindowJoined("outer_fives", ours, theirs, ON, Tumbling("5 seconds"), VALUES, "outer")
sliding = WindowJoined("sliding", ours, theirs, ON, Sliding("10 seconds", "5 seconds"), VALUES, "left", late="drop")
sessions = CoGrouped(
    "visits", ours, theirs, ON, SessionWindow("3 seconds"), "a array<string>, b array<string>", unequal
)
together = WindowJoined("together", ours, theirs, ON, SessionWindow("3 seconds"), VALUES)
distinct = Windowed("distinct", ours, SessionWindow("3 seconds"), {"n": agg.count()}, by=("k",), distinct=("v",))
OPERATORS: tuple[TwoSided, ...] = (outer, sliding, sessions, together)
PIPELINE = Pipeline(name="meeting", streams=(ours, theirs), operators=OPERATORS)


def drawn(draw: random.Random, name: str, delay: int) -> Side:
    """Batches whose rows move on in time, many of them behind the clock."""
    batches, number = [], 0
    for first in range(0, 40, 8):
        batch = []
        for _ in range(draw.randrange(2, 6)):
            number += 1
            time = first + draw.randrange(9) - draw.choice([0, 0, 0, 12, 25])
            batch.append(Row(draw.choice("pq"), time, f"{name}{number:02}"))
        batches.append(batch)
    return Side(batches, delay)


def sides(number: int) -> list[Side]:
    return [drawn(draws("sides", name, number), name[0], delay) for name, delay in DELAYS.items()]


def results(of: TwoSided, both: list[Side], *, late: bool) -> oracle.Results:
    left, right = both
    if of.window.merging:
        lists = oracle.unequal if of is sessions else oracle.inner
        return oracle.sessions(left, right, 3, lists, late=late)
    size, lists = (5, oracle.outer) if of is outer else (10, oracle.left_outer)
    return oracle.fixed(left, right, oracle.sliding(size, 5), lists, late=late)


def shows_late_rows(both: list[Side]) -> bool:
    """Rows of either side are late, and change what every operator says, which says something without them, too."""
    firsts = [(of, results(of, both, late=False)) for of in OPERATORS]
    late = [any(stamp is not None and row.at // 5 * 5 + 5 <= stamp for row, stamp in side.stamped()) for side in both]
    return all(late) and all(first and first != results(of, both, late=True) for of, first in firsts)


SIDES = eventful(sides, shows_late_rows)


def expected(of: TwoSided, *, late: bool) -> oracle.Results:
    return results(of, SIDES, late=late)


def found(spark: SparkSession, lake: Lake, of: TwoSided, what: str) -> oracle.Results:
    rows = tuples(runtime_of(of, lake).readable[what](spark), "k", "window_start", "window_end", "a", "b")
    seconds = (
        (key, *((each - T0).total_seconds() for each in bounds), values)
        for key, *bounds, values in ((row[0], row[1], row[2], row[3:]) for row in rows)
    )
    return sorted(((key, int(start), int(end), values) for key, start, end, values in seconds), key=repr)


def payloads(side: Side, key: str) -> list[list[dict[str, Any]]]:
    return [[{key: row.key, "at": at(row.at).isoformat(), "v": row.value} for row in batch] for batch in side.batches]


def tables(lake: Lake, of: TwoSided) -> dict[str, list[str]]:
    """The rows of its own table and of its state, but for when they were written."""
    rows = {}
    for suffix in ("", *(["state"] if of.window.merging else [])):
        table = DeltaTable(lake.table(of, suffix)).to_pyarrow_table()
        kept = [name for name in table.column_names if name != "_written_at"]
        rows[suffix] = sorted(_text(row) for row in table.select(kept).to_pylist())
    return rows


def _text(row: Mapping[str, Any]) -> str:
    # A list that is kept as state has no order of its own.
    return str({k: sorted(map(str, v)) if k.startswith("_") and isinstance(v, list) else v for k, v in row.items()})


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake with five batches in each log, which all operators have followed in one step."""
    lake = Lake(str(tmp_path_factory.mktemp("logged")))
    for side, stream, key in zip(SIDES, (ours, theirs), ("k", "id"), strict=True):
        land_all(lake, stream, *payloads(side, key))
    drain(spark, lake, PIPELINE, now=lambda: NOW)
    return lake


def only_logs_of(logged: Lake, root: Path) -> Lake:
    lake = Lake(str(root))
    for stream in (ours, theirs):
        shutil.copytree(logged.log(stream), lake.log(stream))
    return lake


def test_first_results_are_of_the_rows_on_time_by_their_own_clock(spark: SparkSession, logged: Lake) -> None:
    for of in OPERATORS:
        first = found(spark, logged, of, "first")
        assert first == expected(of, late=False), of.name
        assert first and first != expected(of, late=True), "some rows are late"


@pytest.mark.long
@pytest.mark.parametrize(("of", "kills"), [(outer, (1, 2)), (sessions, (2, 3, 4))], ids=["outer", "sessions"])
def test_steps_that_are_cut_anywhere_and_killed_at_any_commit_leave_the_same_tables(
    spark: SparkSession, logged: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: TwoSided, kills: tuple[int]
) -> None:
    for kill in kills:
        lake = only_logs_of(logged, tmp_path / str(kill))
        runtime = runtime_of(of, lake)
        with monkeypatch.context() as dying, pytest.raises(Killed):
            dying.setattr(runtimes, "ROWS_PER_CORE", 4)
            killed_at(kill, dying)
            for step in runtime.steps(spark, lambda: NOW):
                step.run()
        # By the same process or by another one.
        for step in (runtime if kill % 2 == 0 else runtime_of(of, lake)).steps(spark, lambda: NOW):
            step.run()
        assert tables(lake, of) == tables(logged, of), kill


def test_a_process_that_was_away_is_refused(spark: SparkSession, logged: Lake, tmp_path: Path) -> None:
    lake = only_logs_of(logged, tmp_path / "away")
    steps = FixedSteps(spark, lake, outer)
    before, (behind,) = Progress.now(lake, outer), steps.pieces(10_000)
    steps.step({name: each[:1] for name, each in behind.items()}, lambda: NOW)
    with pytest.raises(FencedError, match="'outer_fives' was at batch -1 of ours and batch -1 of theirs"):
        steps._publish(None, before, before, NOW)


def test_late_rows_of_a_stream_that_is_both_sides_wait_for_a_correction(spark: SparkSession, logged: Lake) -> None:
    itself = WindowJoined("itself", ours, ours, ("k",), Tumbling("5 seconds"), VALUES)
    runtime = runtime_of(itself, logged)
    clock = Progress.at_heads(logged, itself).watermark
    late = runtime.readable["late"](spark).where(F.col("window_end") <= F.lit(clock))
    by_day = late.groupBy(F.to_date("window_start").alias("day")).agg(F.count("_batch"), F.max("_batch")).orderBy("day")
    planned = [(pending.day, pending.late_pairs, pending.newest_batch) for pending in runtime.plan(spark)]
    assert planned == tuples(by_day, "day", "count(_batch)", "max(_batch)") != []


@pytest.mark.long
def test_late_rows_of_either_side_are_corrected_by_day_and_current_then(spark: SparkSession, logged: Lake) -> None:
    late = tuples(runtime_of(outer, logged).readable["late"](spark), "_side", "left.v", "right.v")
    assert {side for side, *_ in late} == {"left", "right"}
    for of in (outer, sessions, together):
        runtime = runtime_of(of, logged)
        days = [pending.day for pending in runtime.plan(spark)]
        assert days, of.name
        runtime.correct(spark, days, lambda: NOW)
        assert runtime.plan(spark) == []
        assert found(spark, logged, of, "current") == expected(of, late=True), of.name
    broken = [finding for finding in audit(spark, logged, PIPELINE) if not finding.holds]
    assert broken == []


def equal(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    if len(left) == len(right):
        yield {"rows": len(left)}


@pytest.mark.long
def test_a_silent_side_holds_what_depends_on_its_clock_and_no_more(spark: SparkSession, lake: Lake) -> None:
    even = CoGrouped("even", ours, theirs, ON, Tumbling("5 seconds"), "rows bigint", equal)
    alone = Windowed("alone", ours, Tumbling("5 seconds"), {"rows": agg.count()}, by=("k",))
    delivery = Delivery("out", outer, JsonLines("out", by="none"), select=("k", "a", "b"))
    pipeline = Pipeline(name="meeting", streams=(ours, theirs), operators=(outer, even, alone), deliveries=(delivery,))

    def arrive(stream: Stream, seconds: float, value: str) -> None:
        key = "k" if stream is ours else "id"
        land_all(lake, stream, [{key: "p", "at": at(seconds).isoformat(), "v": value}])

    def current(of: Operator, *columns: str) -> list[tuple[Any, ...]]:
        return tuples(runtime_of(of, lake).readable["current"](spark), "window_start", *columns)

    assert correct(spark, lake, outer) == [], "there is no log yet"
    arrive(ours, 1, "a1")
    arrive(ours, 30, "a30")
    arrive(ours, 2, "a2")
    arrive(theirs, 3, "b3")
    drain(spark, lake, pipeline, now=lambda: NOW)
    # Their clock is at -3. The row a2 is late by the clock of its own log, which is at 28.
    assert current(alone, "rows") == [(at(0), 1)]
    assert current(outer, "a", "b") == current(even, "rows") == []
    assert [row[0] for row in tuples(runtime_of(outer, lake).readable["late"](spark), "left.v")] == ["a2"]
    assert runtime_of(outer, lake).plan(spark) == [], "its window is not published yet"
    arrive(theirs, 40, "b40")
    drain(spark, lake, pipeline, now=lambda: NOW)
    assert current(outer, "a", "b") == [(at(0), "a1", "b3")]
    assert current(even, "rows") == [(at(0), 1)]
    for of in (outer, even):
        assert correct(spark, lake, of, now=lambda: NOW) == [at(0).date().isoformat()]
        assert runtime_of(of, lake).plan(spark) == []
    assert current(outer, "a", "b") == [(at(0), "a1", "b3"), (at(0), "a2", "b3")]
    # For two rows and one the function gives nothing, so that what was published is void.
    assert current(even, "rows") == []
    lines = [line for path in sorted(Path(lake.root, "out").rglob("*.json")) for line in path.read_text().splitlines()]
    assert [json.loads(line) for line in lines if '"a"' in line] == [{"k": "p", "a": "a1", "b": "b3"}]
    pairs = Stream(
        "pairs", Table(outer), Json("k string, a string, b string, window_end timestamp"), "window_end", CLOCK
    )
    drain(
        spark, lake, Pipeline(pairs, (Windowed("n", pairs, Tumbling("1 hour"), {"n": agg.count()}),)), now=lambda: NOW
    )
    assert tuples(valid(read_log(spark, lake, pairs)), "window_end", "k", "a", "b") == [(at(5), "p", "a1", "b3")]
    changed = replace(outer, kind="left")
    with pytest.raises(ChangedDeclaration, match="join was outer and is left"):
        runtime_of(changed, lake).check()
    other = Pipeline(name="meeting", streams=(ours, theirs), operators=(changed, even, alone))
    rebuild(spark, lake, other, changed, now=lambda: NOW)
    assert current(changed, "a", "b") == [(at(0), "a1", "b3"), (at(0), "a2", "b3")]
    assert not any(table.operator == outer.name for table in undeclared_tables(lake, other))


def raises(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    raise ValueError("no")


def test_what_a_function_raises_is_told_with_its_key_and_window(
    spark: SparkSession, logged: Lake, tmp_path: Path
) -> None:
    lake = only_logs_of(logged, tmp_path / "raises")
    failing = CoGrouped("failing", ours, theirs, ON, Tumbling("1 day"), "n bigint", raises)
    steps = runtime_of(failing, lake).steps(spark, lambda: NOW)
    told = r"raises of co-group 'failing' failed for \(k='[pq]'\) and the window from 2025-12-31 .*: ValueError: no \("
    with pytest.raises(FunctionError, match=told):
        [step.run() for step in steps]


@pytest.mark.long
def test_a_column_that_is_added_or_moved_is_null_in_what_an_open_session_had_kept(
    spark: SparkSession, lake: Lake
) -> None:
    """```
    ours    p@1=a1          p@3=a3 in Rome
    theirs         p@2=b2                    p@40
    ```
    """

    def shop(columns: str) -> tuple[Pipeline, CoGrouped, WindowJoined, Windowed]:
        left = replace(ours, format=Json(columns))
        of_all = replace(sessions, left=left), replace(together, left=left), replace(distinct, of=left)
        return Pipeline(name="meeting", streams=(left, theirs), operators=of_all), *of_all

    def go_on(pipeline: Pipeline, *rows: Mapping[str, Any]) -> list[str]:
        """The tables of state, each by an identity that it has for as long as it is there."""
        for row in rows:
            land_all(lake, ours if "k" in row else theirs, [{**row, "at": at(row["at"]).isoformat()}])
        drain(spark, lake, pipeline, now=lambda: NOW)
        return [str(DeltaTable(lake.table(of, "state")).metadata().id) for of in pipeline.operators]

    before, *_ = shop("k string, at timestamp not null, v string")
    kept = go_on(before, {"k": "p", "at": 1, "v": "a1"}, {"id": "p", "at": 2, "v": "b2"})
    assert go_on(before, {"k": "q", "at": 2, "v": "a2"}) == kept, "state is made anew where nothing has changed"
    after, visits, pairs, counted = shop("place string, v string, k string, at timestamp not null")
    anew = go_on(after, {"k": "p", "at": 3, "v": "a3", "place": "Rome"})
    assert not {*anew} & {*kept}
    assert go_on(after, {"k": "p", "at": 40, "v": "a40"}, {"id": "p", "at": 50, "v": "b50"}) == anew
    first = runtime_of(visits, lake).readable["first"](spark)
    assert [sorted(row.a) for row in first.where("k = 'p'").collect()] == [["a1", "a3"]]
    assert tuples(runtime_of(pairs, lake).readable["first"](spark), "a", "b") == [("a1", "b2"), ("a3", "b2")]
    assert tuples(runtime_of(counted, lake).readable["first"](spark), "k", "n") == [("p", 2), ("q", 1)]
    assert all(finding.holds for finding in audit(spark, lake, after))

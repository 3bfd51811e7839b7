"""A row that a view cannot compute goes to a side output, and everything else is as if it had never come."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from streaming import (
    Aggregate,
    BoundedOutOfOrderness,
    Custom,
    Files,
    Json,
    Lake,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    WindowFunction,
    agg,
)
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, StreamingError
from streaming.operations.rebuild import rebuild
from streaming.operators.runtime import runtime_of
from streaming.views import steps as view_steps
from tests.support.instants import NOW, T0, at
from tests.support.runs import run
from tidemark.testing import correct, read

readings = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, code string, n bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds", max_ahead="365 days"),
)
NOT_CLOCK = "id <> 'clock'"
sums = Windowed(
    "sums", readings, Tumbling("10 seconds"), {"sum": agg.sum("cast(code as int)")}, ("id",), NOT_CLOCK, on_error="side"
)
sliding = replace(
    sums,
    name="sliding",
    window=Sliding("20 seconds", "5 seconds"),
    aggregates={
        "most": agg.max_by("code", "60 div n"),
        "few": Aggregate("sum(n) filter (where cast(code as int) < 9) / count(1)", "share of few"),
    },
)
VIEWS = (
    sums,
    replace(
        sums,
        name="judged",
        where=f"{NOT_CLOCK} and cast(code as int) > 0",
        aggregates={"rows": agg.count()},
        late="update",
        allowed_lateness="1 minute",
        early="each batch",
    ),
    sliding,
    replace(sums, name="visits", window=SessionWindow("5 seconds"), aggregates={"mean": agg.mean("cast(code as int)")}),
    replace(
        sums,
        name="stays",
        window=SessionWindow(seconds_of="60 div n"),
        aggregates={"codes": agg.collect("code")},
        late="update",
        allowed_lateness="1 minute",
    ),
    replace(
        sums,
        name="placed",
        window=Custom(
            "array(struct(date_trunc('minute', at) as start, date_trunc('minute', at) + make_interval(0, 0, 0, 0, 0, "
            "cast(code as int)) as end))",
            within="3 minutes",
        ),
        aggregates={"codes": agg.count_distinct("60 div n")},
        distinct=("n",),
        late="drop",
    ),
)
pipeline = Pipeline(readings, VIEWS)

Row = tuple[str, int, str, int]
"""Id, second, code, n."""
GOOD = (
    [("a", 1, "1", 2), ("b", 2, "2", 3), ("a", 3, "4", 5)],
    [("a", 14, "8", 6), ("b", 16, "9", 10), ("c", 31, "7", 2)],
    [("a", 4, "16", 3), ("c", 36, "1", 1), ("b", 18, "32", 2)],
    [("c", 120, "1", 1)],
)
BAD: tuple[list[Row], ...] = (
    [("a", 2, "x", 0), ("b", 2, "y", 0)],
    [("c", 30, "x", 0)],
    # Late, one of them for a window that is published.
    [("a", 2, "z", 0), ("b", 17, "", 0)],
    [],
)


def payload(row: Row) -> dict[str, Any]:
    name, second, code, n = row
    return {"id": name, "at": at(second).isoformat(), "code": code, "n": n}


def batches(*kinds: tuple[list[Row], ...]) -> list[list[dict[str, Any]]]:
    return [[payload(row) for rows in batch for row in rows] for batch in zip(*kinds, strict=True)]


# Rows that the views leave out, but for the clock, to which a row that fails is one like any other.
CLOCK = tuple([("clock", second, "1", 1) for _, second, _, _ in rows] for rows in BAD)


def broken(spark: SparkSession, lake: Lake, of: Pipeline = pipeline) -> list[Any]:
    return [finding for finding in audit(spark, lake, of) if finding.broken]


def failed(spark: SparkSession, lake: Lake, view: Windowed) -> set[tuple[str, int]]:
    """Those told of as failed: id and second."""
    told = read(spark, lake, view, "failed", "row", "_at")
    return {(json.loads(row)["id"], int((when - T0).total_seconds())) for row, when in told}


@pytest.mark.long
@pytest.mark.parametrize("folded", [False, True], ids=["read", "folded"])
def test_rows_that_cannot_be_computed_are_told_of_and_change_no_result_first_or_corrected(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, folded: bool
) -> None:
    if folded:
        monkeypatch.setattr(view_steps, "FOLDED_FROM", 1)
    views = (sums, sliding) if folded else VIEWS
    of = Pipeline(readings, views)
    clean = Lake(f"{lake.root}/clean")
    run(spark, clean, of, *batches(GOOD, CLOCK))
    # Each batch is a run of its own: whatever a view keeps, a restart is between them.
    for batch in batches(GOOD, BAD):
        run(spark, lake, of, batch)

    def same(what: str, *columns: str) -> None:
        for view in views:
            names = columns or view.columns
            got, expected = (read(spark, where, view, what, *names) for where in (lake, clean))
            assert got == expected, view.name
            assert got or what == "late", view.name

    same("first")
    same("late", "window_start", "id", "n")
    assert broken(spark, lake, of) == []
    for view in views:
        if view.corrected:
            days = [correct(spark, where, view, lambda: NOW) for where in (lake, clean)]
            assert days[0] == days[1], view.name
    same("current")
    assert broken(spark, lake, of) == []
    every = {(name, second) for rows in BAD for name, second, _, _ in rows}
    assert {view.name: failed(spark, lake, view) for view in views} == {view.name: every for view in views}
    expected: dict[tuple[str, datetime], int] = defaultdict(int)
    for name, second, code, _ in (row for rows in GOOD for row in rows if row[1] < 110):
        expected[name, T0 + timedelta(seconds=second // 10 * 10)] += int(code)
    assert {
        (name, start): total for name, start, total in read(spark, lake, sums, "current", "id", "window_start", "sum")
    } == expected


REASONS = {
    "judged": f"where cannot be computed: {NOT_CLOCK} and cast(code as int) > 0",
    "sliding": f"aggregate 'most' cannot be computed: {sliding.aggregates['most'].sql}",
    "visits": "aggregate 'mean' cannot be computed: avg(cast(code as int))",
    "stays": "window cannot be computed: 60 div n",
    "placed": f"window cannot be computed: {VIEWS[-1].window.expressions[0]}",
}


@pytest.mark.sampled
@pytest.mark.parametrize("other", VIEWS[1:], ids=lambda view: view.name)
def test_a_failed_row_is_told_with_its_error_its_values_and_where_it_came_from(
    spark: SparkSession, lake: Lake, other: Windowed
) -> None:
    run(spark, lake, Pipeline(readings, (sums, other)), *batches(GOOD, BAD))
    rows = runtime_of(sums, lake).readable["failed"](spark).collect()
    assert {row["error"] for row in rows} == {"aggregate 'sum' cannot be computed: sum(cast(code as int))"}
    told = [json.loads(row["row"]) for row in rows]
    assert [(each["id"], each["code"], each["n"]) for each in told] == [
        (name, code, n) for name, _, code, n in chain.from_iterable(BAD)
    ]
    assert [row["_batch"] for row in rows] == [0, 0, 1, 2, 2]
    files = [row["_origin"]["path"] for row in rows]
    assert files[0] == files[1] and len(set(files)) == 3
    errors = {row["error"] for row in runtime_of(other, lake).readable["failed"](spark).collect()}
    assert errors == {REASONS[other.name]}
    assert runtime_of(sums, lake).explain(spark)["errors"] == "go to the side output 'failed'"
    assert [spec.name for spec in sums.columns_of("failed")] == rows[0].__fields__
    as_of = lake.as_of({"readings": 0})
    assert [row["_batch"] for row in runtime_of(sums, as_of).readable["failed"](spark).collect()] == [0, 0]


@pytest.mark.long
def test_a_view_that_pauses_for_a_row_goes_on_once_such_rows_are_declared_to_go_aside_and_can_be_rebuilt(
    spark: SparkSession, lake: Lake
) -> None:
    pausing = Pipeline(readings, (replace(sums, on_error="pause"),))
    given = batches(GOOD, BAD)
    run(spark, lake, pausing, batches(GOOD)[0])
    with pytest.raises(StreamingError, match="cast"):
        run(spark, lake, pausing, *given[1:])
    diverting = Pipeline(readings, (sums,))
    run(spark, lake, diverting)
    assert failed(spark, lake, sums) == {("c", 30), ("a", 2), ("b", 17)}
    correct(spark, lake, sums, lambda: NOW)
    assert broken(spark, lake, diverting) == []
    before = read(spark, lake, sums, "current", *sums.columns)
    with pytest.raises(ChangedDeclaration, match="on error was side and is nothing"):
        run(spark, lake, pausing)
    rebuild(spark, lake, diverting, sums, now=lambda: NOW)
    run(spark, lake, diverting)
    assert read(spark, lake, sums, "current", *sums.columns) == before
    assert broken(spark, lake, diverting) == []


def not_thirteen(rows: pd.DataFrame) -> pd.DataFrame:
    if (rows["n"] == 13).any():
        raise ValueError("thirteen")
    return pd.DataFrame({"total": [rows["n"].sum()]})


totals = Windowed(
    "totals",
    readings,
    Tumbling("10 seconds"),
    by=("id",),
    function=WindowFunction(not_thirteen, "total bigint"),
    on_error="side",
)


@pytest.mark.long
def test_a_window_for_which_the_function_fails_has_no_result_and_is_told_of(spark: SparkSession, lake: Lake) -> None:
    called = Pipeline(readings, (totals,))
    run(
        spark,
        lake,
        called,
        [payload(row) for row in [("a", 1, "", 13), ("b", 2, "", 1), ("c", 3, "", 5), ("a", 20, "", 1)]],
    )
    assert read(spark, lake, totals, "current", "id", "total") == [("b", 1), ("c", 5)]
    # A late row makes void what was published.
    run(spark, lake, called, [payload(row) for row in [("b", 3, "", 13), ("c", 4, "", 2), ("a", 40, "", 1)]])
    assert broken(spark, lake, called) == []
    correct(spark, lake, totals, lambda: NOW)
    assert read(spark, lake, totals, "current", "id", "total") == [("a", 1), ("c", 7)]
    assert broken(spark, lake, called) == []
    told = runtime_of(totals, lake).readable["failed"](spark).collect()
    assert [(json.loads(row["row"]), row["window_start"].timestamp()) for row in told] == [
        ({"id": "a"}, T0.timestamp()),
        ({"id": "b"}, T0.timestamp()),
    ]
    assert all(row["error"].startswith("ValueError: thirteen (") for row in told)


def test_a_view_that_pauses_is_the_one_that_never_said_so() -> None:
    assert replace(sums, on_error="pause").fingerprint == {
        name: value for name, value in sums.fingerprint.items() if name != "on error"
    }
    assert "failed" not in replace(sums, on_error="pause").reserved_suffixes

"""Results with a struct whose stream gets a field: they are published as before, and old ones have null there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    Selected,
    SessionWindow,
    Stream,
    Tumbling,
    View,
    Windowed,
    WindowJoined,
    agg,
    drain,
)
from streaming.audit.laws import audit
from streaming.changes import publishing
from streaming.declare import CHANGES, CURRENT, STATE
from streaming.declare.operator import Operator
from streaming.tables import delta
from streaming.views import steps
from tests.support.instants import NOW, at
from tidemark.testing import correct, land_all

BEFORE, AFTER = "struct<a: string>", "struct<b: string, a: string>"


def pipeline_of(struct: str, more: str = "") -> Pipeline:
    columns = f"id string, version bigint, at timestamp, c {struct}, many array<{struct}>{more}"
    clock = BoundedOutOfOrderness("10 seconds", max_ahead="30 days")
    rows = Stream("rows", Files("landing/rows"), Json(columns), "at", clock)
    orders = replace(
        rows, name="orders", source=Files("landing/orders"), key=("id",), sequence="version", deletes="version < 0"
    )
    ads = replace(rows, name="ads", source=Files("landing/ads"), format=Json("id string, at timestamp"))
    operators: tuple[Operator, ...] = (
        Selected("everything", of=orders),
        Joined("shown", rows, ads, ("id",), ("-5 seconds", "5 seconds"), "left", select={"id": "id", "c": "c"}),
        View("keyless", "select id, c, many from orders", of=(orders,)),
        View("keyed", "select id, c, many from orders", of=(orders,), key=("id",)),
        Windowed("newest", rows, Tumbling("10 seconds"), {"c": agg.last("c")}, by=("id",)),
    )
    return Pipeline(name="shop", streams=(rows, orders, ads), operators=operators)


def row(id_: str, version: int, seconds: float, **c: str) -> dict[str, Any]:
    return {"id": id_, "version": version, "at": at(seconds).isoformat(), "c": c, "many": [c]}


def go_on(spark: SparkSession, lake: Lake, pipeline: Pipeline, of: dict[str, Sequence[dict[str, Any]]]) -> None:
    streams = {stream.name: stream for stream in pipeline.streams}
    for name, rows in of.items():
        land_all(lake, streams[name], rows)
    drain(spark, lake, pipeline, now=lambda: NOW)


def told(spark: SparkSession, lake: Lake, name: str, suffix: str) -> list[tuple[Any, ...]]:
    """The id, both fields, and of signed rows the sign."""
    (operator,) = (each for each in pipeline_of(AFTER).operators if each.name == name)
    return shown(spark, lake, operator, suffix)


def shown(spark: SparkSession, lake: Lake, operator: Operator, suffix: str) -> list[tuple[Any, ...]]:
    rows = delta.read(spark, lake.table(operator, suffix))
    sign = ["_change"] if "_change" in rows.columns else []
    return in_order(*map(tuple, rows.selectExpr("id", "c.a", "c.b", *sign).collect()))


def in_order(*rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


@pytest.mark.long
@pytest.mark.parametrize("in_memory", [publishing._IN_MEMORY, 0])
def test_a_field_that_a_struct_gets_is_null_in_all_that_was_published_before(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(publishing, "_IN_MEMORY", in_memory)
    before, after = pipeline_of(BEFORE), pipeline_of(AFTER, ", note string")
    first = [row("p", 1, 1, a="old"), row("q", 1, 2, a="old"), row("z", 1, 30, a="old")]
    go_on(spark, lake, before, {"rows": first, "orders": first, "ads": [row("z", 1, 30)]})
    go_on(spark, lake, after, {})
    second = [row("p", 2, 3, a="old", b="new"), row("r", 1, 41, a="old", b="new"), row("z", 2, 60, a="old", b="new")]
    go_on(spark, lake, after, {"rows": second, "orders": second, "ads": [row("q", 1, 3), row("z", 1, 60)]})
    assert correct(spark, lake, after.operators[-1], lambda: NOW)
    go_on(spark, lake, after, {})

    added = [("p", "old", None, 1), ("q", "old", None, 1), ("z", "old", None, 1)]
    for name in ("everything", "keyless", "keyed"):
        changed = [("p", "old", None, -1), ("z", "old", None, -1), *((id_, "old", "new", 1) for id_ in "prz")]
        assert told(spark, lake, name, CURRENT) == [
            ("p", "old", "new"),
            ("q", "old", None),
            ("r", "old", "new"),
            ("z", "old", "new"),
        ]
        for suffix in ("", CHANGES):
            assert told(spark, lake, name, suffix) == in_order(*added, *changed), (name, suffix)
    alone, paired = (
        [("p", "old", None), ("p", "old", "new"), ("r", "old", "new")],
        [("z", "old", None), ("z", "old", "new")],
    )
    assert told(spark, lake, "shown", "") == in_order(("q", "old", None), *paired)
    assert told(spark, lake, "shown", CURRENT) == in_order(("q", "old", None), *alone, *paired)
    # Its partner came late, and the pair has another time than the row alone.
    met_late = [("q", "old", None, sign) for sign in (1, -1, 1)]
    assert told(spark, lake, "shown", CHANGES) == in_order(*met_late, *((*each, 1) for each in (*alone, *paired)))

    others = [("q", "old", None), ("r", "old", "new"), ("z", "old", None)]
    assert told(spark, lake, "newest", "") == in_order(("p", "old", None), *others)
    assert told(spark, lake, "newest", CURRENT) == in_order(("p", "old", "new"), *others)
    corrected = [("p", "old", None, 1), ("p", "old", None, -1), ("p", "old", "new", 1)]
    assert told(spark, lake, "newest", CHANGES) == in_order(*corrected, *((*each, 1) for each in others))
    assert [finding for finding in audit(spark, lake, after) if not finding.holds] == []


@pytest.mark.long
def test_windows_are_corrected_and_closed_whichever_of_their_tables_has_rows_with_the_field(
    spark: SparkSession, lake: Lake
) -> None:
    """```
    rows    p@1  z@30      p@2 late       with b from here on:   p@3 late     z@60
    ads     p@1  z@30                                                         z@60
    ```
    """

    def with_windows(struct: str) -> Pipeline:
        of = pipeline_of(struct)
        rows, _, ads = of.streams
        last, ten = {"c": agg.last("c")}, Tumbling("10 seconds")
        operators: tuple[Operator, ...] = (
            Windowed("newest", rows, ten, last, by=("id",)),
            WindowJoined("met", rows, ads, ("id",), ten, {"c": "c"}, "left"),
            Windowed("visits", rows, SessionWindow("5 seconds"), last, by=("id",)),
        )
        return replace(of, streams=(rows, ads), operators=operators)

    before, after = with_windows(BEFORE), with_windows(AFTER)
    newest, met, visits = after.operators
    first = [row("p", 1, 1, a="1"), row("z", 1, 30, a="30")]
    go_on(spark, lake, before, {"rows": first, "ads": first})
    go_on(spark, lake, before, {"rows": [row("p", 2, 2, a="2")]})
    assert correct(spark, lake, before.operators[1], lambda: NOW)
    go_on(spark, lake, after, {"rows": [row("p", 3, 3, a="3", b="new")]})
    # Corrections have the field, which no first result has yet.
    assert correct(spark, lake, newest, lambda: NOW) and correct(spark, lake, visits, lambda: NOW)
    go_on(spark, lake, after, {})
    # First results have it, which no correction of the join has yet.
    last = [row("z", 2, 60, a="60", b="new"), row("z", 2, 80, a="80", b="new")]
    go_on(spark, lake, after, {"rows": last, "ads": last})
    assert correct(spark, lake, met, lambda: NOW)
    go_on(spark, lake, after, {})

    closed = [("z", "30", None), ("z", "60", "new")]
    for of in (newest, visits):
        assert shown(spark, lake, of, "") == in_order(("p", "1", None), *closed)
        assert shown(spark, lake, of, CURRENT) == in_order(("p", "3", "new"), *closed)
    pairs = [("p", "1", None), ("p", "2", None), ("p", "3", "new")]
    assert shown(spark, lake, met, "") == in_order(("p", "1", None), *closed)
    assert shown(spark, lake, met, CURRENT) == in_order(*pairs, *closed)
    assert [finding for finding in audit(spark, lake, after) if not finding.holds] == []


@pytest.mark.long
def test_rows_that_are_folded_into_panes_have_null_in_a_field_that_came_later(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "FOLDED_FROM", 0)
    of_all = map(pipeline_of, (BEFORE, AFTER))
    before, after = (Pipeline(each.streams[0], each.operators[-1:]) for each in of_all)
    (newest,) = after.operators
    go_on(spark, lake, before, {"rows": [row("p", 1, 1, a="1"), row("z", 1, 30, a="30")]})
    panes = [DeltaTable(lake.table(newest, STATE)).metadata().id]
    go_on(spark, lake, before, {"rows": [row("q", 1, 31, a="31")]})
    assert [DeltaTable(lake.table(newest, STATE)).metadata().id] == panes, (
        "they are made anew where nothing has changed"
    )
    go_on(spark, lake, after, {"rows": [row("r", 2, 32, a="32", b="new"), row("z", 2, 60, a="60", b="new")]})
    told = [("p", "1", None), ("q", "31", None), ("r", "32", "new"), ("z", "30", None)]
    assert shown(spark, lake, newest, "") == shown(spark, lake, newest, CURRENT) == told
    assert [finding for finding in audit(spark, lake, after) if not finding.holds] == []

"""A row that a selection cannot compute goes to a side output, and everything else is as if it had never come."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    RowFunction,
    Selected,
    Side,
    Stream,
    drain,
)
from streaming.audit.laws import audit
from streaming.base.errors import ChangedDeclaration, DeclarationError, FunctionError
from streaming.lake.lake import Lake
from streaming.operators.progress import FilterCounts
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tidemark.testing import read

readings = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, code string, n bigint, list array<bigint>"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)


def not_thirteen(row: Any, opened: None) -> Iterator[Mapping[str, Any]]:
    if row.n == 13:
        raise ValueError("thirteen")
    yield {"n": row.n}


plain = Selected(
    "plain",
    readings,
    {"id": "id", "code": "cast(code as int)"},
    where="n <> 0",
    sides={
        "shares": Side({"id": "id", "share": "60 div n"}, where="id <> 'unasked'"),
        "each": Side({"id": "id", "part": "60 div element"}, explode={"element": "list"}),
    },
    on_error="side",
)
called = replace(plain, name="called", select={"n": "n"}, sides={}, function=RowFunction(not_thirteen, "n bigint"))
pipeline = Pipeline(readings, (plain, called))

GOOD = [("a", "1", 2, [1, 2]), ("unasked", "2", 3, [4]), ("b", "3", 5, [])]
# The last one is removed by `where` before its code is read, and a side output divides by its `n` all the same.
BAD = [("text", "x", 1, []), ("element", "1", 1, [1, 0]), ("called", "1", 13, []), ("zero", "x", 0, [])]


def payloads(rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    names = ("id", "code", "n", "list")
    return [{**dict(zip(names, row, strict=True)), "at": at(second).isoformat()} for second, row in enumerate(rows)]


def ids(spark: SparkSession, lake: Lake, of: Selected) -> dict[str, str]:
    """The error of each row that failed, by its id."""
    return {json.loads(row)["id"]: error for row, error in read(spark, lake, of, "failed", "row", "error")}


@pytest.mark.long
def test_rows_that_cannot_be_computed_go_aside_once_and_change_nothing_else_however_the_log_is_cut(
    spark: SparkSession, lake: Lake
) -> None:
    clean = Lake(f"{lake.root}/clean")
    land_all(clean, readings, payloads(GOOD))
    drain(spark, clean, pipeline, now=lambda: NOW)
    for rows in ([*BAD[:1], *GOOD[:1]], [*BAD[1:], *GOOD[1:]]):
        land_all(lake, readings, payloads(rows))
        drain(spark, lake, pipeline, now=lambda: NOW)
    assert ids(spark, lake, plain) == {
        "text": "column 'code' cannot be computed: cast(code as int)",
        "element": "an element of what is exploded cannot be computed",
        "zero": "column 'share' of side output 'shares' cannot be computed: 60 div n",
    }
    (error,) = ids(spark, lake, called).values()
    assert re.fullmatch(r"ValueError: thirteen \(.*test_diverted\.py, line \d+, in not_thirteen: raise .*\)", error)
    thirteen = [("called", 1)]
    assert read(spark, lake, plain, "current", "id", "code") == sorted(
        [*read(spark, clean, plain, "current", "id", "code"), *thirteen]
    )
    assert read(spark, lake, plain, "shares", "id", "share") == sorted(
        [*read(spark, clean, plain, "shares", "id", "share"), ("called", 4)]
    )
    assert read(spark, lake, plain, "each", "id", "part") == read(spark, clean, plain, "each", "id", "part")
    assert runtime_of(plain, lake).filtered()[""] == FilterCounts(4, 4)
    assert [finding for finding in audit(spark, lake, pipeline) if finding.broken] == []
    with pytest.raises(ChangedDeclaration, match="on error was side and is nothing"):
        drain(spark, lake, replace(pipeline, operators=(replace(plain, on_error="pause"), called)), now=lambda: NOW)


@pytest.mark.long
def test_a_selection_that_pauses_for_a_row_goes_on_once_such_rows_are_declared_to_go_aside(
    spark: SparkSession, lake: Lake
) -> None:
    """What it published until then stays, as no row that cannot be computed was ever passed."""
    pausing = Pipeline(readings, (replace(called, on_error="pause"),))
    land_all(lake, readings, payloads([("a", "1", 2, [])]))
    drain(spark, lake, pausing, now=lambda: NOW)
    land_all(lake, readings, payloads([("b", "1", 13, []), ("c", "1", 5, [])]))
    with pytest.raises(
        FunctionError, match=r"of selection 'called' failed for the row \(n=13\) .*: ValueError: thirteen"
    ):
        drain(spark, lake, pausing, now=lambda: NOW)
    diverting = Pipeline(readings, (called,))
    assert [finding for finding in audit(spark, lake, diverting) if finding.broken] == []
    drain(spark, lake, diverting, now=lambda: NOW)
    assert read(spark, lake, called, "current", "n") == [(2,), (5,)] and ids(spark, lake, called).keys() == {"b"}
    assert [finding for finding in audit(spark, lake, diverting) if finding.broken] == []


def test_a_choice_that_there_is_not_and_a_name_that_is_taken_are_refused() -> None:
    with pytest.raises(DeclarationError, match="on_error='fail' of selection 'plain' is unknown; use one of: 'pause'"):
        replace(plain, on_error="fail")  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="'failed' of its own beside on_error='side'"):
        replace(plain, sides={"failed": Side()})


def test_tables_of_a_selection_that_pauses_are_those_of_one_that_never_said_so() -> None:
    assert "on error" not in replace(plain, on_error="pause").fingerprint
    assert plain.fingerprint["on error"] == "side"

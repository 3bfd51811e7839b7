"""Results that Arrow computes of few rows are those that Spark computes; where they might differ, Spark does."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    LocalDays,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.base.errors import QueryFailed
from streaming.log.read import LogFiles
from streaming.spark.arrow_tree import Unproven
from streaming.views.arrow_results import ArrowResults, row_expressions
from streaming.views.results import read_first
from streaming.views.steps import FixedSteps, analysis_over
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.running import ingest
from tests.support.runs import run
from tests.support.seeds import draws

drawn = Stream(
    name="drawn",
    source=Files("landing/drawn", files_per_batch=1),
    format=Json(
        "id string, flag boolean, n bigint, small int, x double, thin float, price decimal(12,2), wide decimal(38,4), "
        "day date, at timestamp, here string"
    ),
    derived={"odd": "if(n = 7, double('NaN'), x)", "local": "cast(here as timestamp_ntz)"},
    event_time="at",
    clock=BoundedOutOfOrderness("3 seconds"),
)
VALUES = {
    "rows": agg.count(),
    "positive": agg.count("n > 0"),
    "filled": agg.count("x is not null"),
    "sum_n": agg.sum("n"),
    "sum_small": agg.sum("small * 2"),
    "sum_x": agg.sum("x"),
    "sum_odd": agg.sum("odd"),
    "sum_thin": agg.sum("thin"),
    "sum_price": agg.sum("price"),
    "mean_n": agg.mean("n"),
    "mean_thin": agg.mean("thin"),
    "share": agg.share("n > 3"),
    "least_n": agg.minimum("n"),
    "greatest_price": agg.maximum("price"),
    "greatest_wide": agg.maximum("wide"),
    "first_day": agg.minimum("day"),
    "last_at": agg.maximum("at"),
    "last_local": agg.maximum("local"),
    "ever": agg.maximum("flag"),
}
VIEWS = (
    Windowed("by_id", drawn, Tumbling("10 seconds"), VALUES, by=("id",)),
    Windowed("of_all", drawn, Tumbling("7 seconds", offset="-1 second"), VALUES),
    Windowed(
        "by_day", drawn, Sliding("10 seconds", "3 seconds"), VALUES, by=("day", "flag"), where="n > 0 or x is null"
    ),
    Windowed("apart", drawn, Sliding("2 seconds", "5 seconds"), VALUES, by=("price", "local"), where="flag"),
    Windowed("many", drawn, Sliding("1 minute", "1 second", offset="300 milliseconds"), VALUES, by=("small",)),
)
_EDGES: dict[str, list[Any]] = {
    "id": ["a", "b", "A", "", "é", None],
    "flag": [True, False, None],
    "n": [0, 1, -1, 7, 2**53 + 1, None],
    "small": [0, 5, -5, 2**29, None],
    # Of one sign: where great ones cancel each other, the order of a sum tells what is left.
    "x": [0.0, -0.0, 1.5, 1e300, 1e-300, None],
    "thin": [0.0, 0.1, 3.25, 3e38, None],
    "price": [Decimal("0.00"), Decimal("-0.01"), Decimal("9999999999.99"), Decimal("1.50"), None],
    "wide": [Decimal("0.0001"), Decimal("-9999999999999999999999999999999999.9999"), None],
    "day": ["2026-01-01", "1969-12-31", "0001-01-01", None],
    "here": ["2026-01-01T00:00:00", "1582-10-04T00:00:00.000001", None],
}


def row(chance: Random, second: float) -> str:
    """A row of what Spark and Arrow may find different, at an instant that is often a bound of windows."""
    values = {name: chance.choice(edges) for name, edges in _EDGES.items()}
    moment = at(second + chance.choice([0, 0, -0.000001, 0.5, -4, -11]))
    # JSON has decimals as numbers, with all of their digits.
    texts = {name: str(each) if isinstance(each, Decimal) else json.dumps(each) for name, each in values.items()}
    return "".join(
        ("{", *(f'"{name}": {text}, ' for name, text in texts.items()), f'"at": "{moment.isoformat()}"', "}")
    )


@pytest.fixture(scope="module")
def logged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Four batches, of which late rows are part."""
    lake, chance = Lake(str(tmp_path_factory.mktemp("lake"))), draws("arrow results")
    batches = [[row(chance, second) for second in range(25 * number, 25 * number + 40)] for number in range(4)]
    land_all(lake, drawn, *batches)
    ingest(spark, lake, Pipeline(drawn, VIEWS))
    return lake


def by_spark(
    spark: SparkSession, lake: Lake, view: Windowed, since: datetime | None, by: datetime, through: int
) -> pa.Table:
    """The results as the steps of any windows compute them."""
    steps = FixedSteps(spark, lake, view)
    rows = steps.logs[view.of.name].with_times(spark, *view.window.times_for_ends(since, by), through)
    return steps._results_of({view.of.name: rows}, since, by).toArrow()


def by_arrow(spark: SparkSession, lake: Lake, view: Windowed) -> ArrowResults:
    log = LogFiles(lake, view.of)
    return ArrowResults(log, analysis_over(spark, view, {view.of.name: log}))


def told(rows: pa.Table, view: Windowed) -> list[tuple[Any, ...]]:
    """Rows in the order of their identity, with numbers as texts that tell NaN, and doubles to twelve digits."""
    names = [*view.columns, "_day"]
    listed = [tuple(_told(each[name]) for name in names) for each in rows.select(names).to_pylist()]
    return sorted(listed, key=repr)


def _told(value: Any) -> Any:
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value + 0.0:.12e}"
    return value.isoformat() if isinstance(value, date) else value


def spans() -> Iterator[tuple[datetime | None, datetime]]:
    ends = [at(seconds) for seconds in (10, 20, 20.3, 47, 90)]
    yield None, ends[0]
    yield None, ends[-1]
    yield from pairwise(ends)


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
def test_arrow_computes_the_results_that_spark_computes(spark: SparkSession, logged: Lake, view: Windowed) -> None:
    results = by_arrow(spark, logged, view)
    rows = 0
    for through in (1, 3):
        for since, by in spans():
            found = results.of(since, by, through)
            assert found is not None
            rows += found.num_rows
            expected = by_spark(spark, logged, view, since, by, through)
            assert found.schema.types == expected.select(found.column_names).schema.types
            assert told(found, view) == told(expected, view), (through, since, by)
    assert rows > 10


def extremes(lake: Lake, spark: SparkSession, *values: dict[str, Any]) -> None:
    batch = [{"id": "a", "at": at(1).isoformat(), **each} for each in values]
    land_all(lake, drawn, batch, [{"at": at(60).isoformat()}])
    ingest(spark, lake, Pipeline(drawn, VIEWS[:1]))


@pytest.mark.parametrize(
    ("aggregate", "values", "is_left"),
    [
        (agg.maximum("odd"), [{"n": 7}, {"n": 1, "x": 1.0}], True),
        (agg.minimum("x"), [{"x": 0.0}, {"x": -0.0}], False),
        (agg.sum("n"), [{"n": 2**62}, {"n": 2**62 - 1}, {"n": -5}], True),
        (agg.sum("1 / small"), [{"small": 4}, {"small": 2}], False),
    ],
    ids=["NaN", "zeros of both signs", "a sum that may be too large", "a quotient"],
)
def test_a_value_of_which_arrow_finds_otherwise_is_left_to_spark(
    spark: SparkSession, lake: Lake, aggregate: agg.Aggregate, values: list[dict[str, Any]], is_left: bool
) -> None:
    extremes(lake, spark, *values)
    view = Windowed("one", drawn, Tumbling("10 seconds"), {"value": aggregate}, by=("id",))
    found = by_arrow(spark, lake, view).of(None, at(20), 1)
    expected = by_spark(spark, lake, view, None, at(20), 1)
    assert (found is None) == is_left
    assert found is None or told(found, view) == told(expected, view)
    run(spark, lake, Pipeline(drawn, (view,)))
    assert told(read_first(spark, lake, view).toArrow(), view) == told(expected, view)


def test_a_sum_that_spark_refuses_is_refused(spark: SparkSession, lake: Lake) -> None:
    extremes(lake, spark, {"n": 2**62}, {"n": 2**62})
    view = Windowed("one", drawn, Tumbling("10 seconds"), {"value": agg.sum("n")})
    assert by_arrow(spark, lake, view).of(None, at(20), 1) is None
    with pytest.raises(QueryFailed, match="ARITHMETIC_OVERFLOW"):
        run(spark, lake, Pipeline(drawn, (view,)))


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"window": SessionWindow("10 seconds")}, "SessionWindow windows are known to Spark alone"),
        ({"window": LocalDays("Europe/Berlin")}, "LocalDays windows are known to Spark alone"),
        ({"by": ("x",)}, "values of x that are equal in Spark"),
        ({"aggregates": {"middle": agg.median("n")}}, "middle is no simple aggregate"),
        ({"aggregates": {"mean": agg.mean("price")}}, "decimal(12,2) is left to Spark"),
        ({"aggregates": {"sum": agg.sum("wide")}}, "decimal(38,4) is left to Spark"),
        ({"aggregates": {"name": agg.maximum("id")}}, "string is left to Spark"),
        ({"distinct": ("n",)}, "does not follow from each of them alone"),
        ({"on_error": "side"}, "does not follow from each of them alone"),
        ({"where": "rand() > 0.5"}, "changes from run to run"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_view_that_is_not_proven_is_left_to_spark(
    spark: SparkSession, logged: Lake, changed: dict[str, Any], reason: str
) -> None:
    log = LogFiles(logged, drawn)
    told_of = row_expressions(analysis_over(spark, replace(VIEWS[0], **changed), {"drawn": log}))
    assert isinstance(told_of, Unproven) and reason in told_of.reason


def test_more_rows_than_a_driver_should_hold_are_left_to_spark(
    spark: SparkSession, logged: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = by_arrow(spark, logged, VIEWS[0])
    monkeypatch.setattr("streaming.views.arrow_results.MOST_ROWS", 20)
    assert results.of(None, at(90), 3) is None

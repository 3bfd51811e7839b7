"""What Spark cannot compute of the declared types is refused before a row is read, naming what and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Pipeline,
    Rule,
    Selected,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.base.errors import DeclarationError
from streaming.declare.aggregates import Aggregate
from streaming.declare.operator import Operator
from streaming.lake.lake import Lake
from tests.support.runs import run

COLUMNS = "id string, at timestamp, n bigint, xs array<int>, st struct<a: int>"


def stream(**more: object) -> Stream:
    clock = BoundedOutOfOrderness("0 seconds")
    return Stream("typed", Files("landing/typed"), Json(COLUMNS), "at", clock, **more)  # type: ignore[arg-type]


def view(of: Stream, **more: object) -> Windowed:
    return Windowed("seen", of, Tumbling("1 hour"), **{"aggregates": {"n": agg.count()}, **more})  # type: ignore[arg-type]


REFUSED: dict[str, tuple[Callable[[], Operator], str]] = {
    "derived": (
        lambda: view(stream(derived={"day": "cast(n as date)"})),
        r"derived column 'day' of stream 'typed' is 'cast\(n as date\)' of n bigint, which Spark cannot compute",
    ),
    "rule": (
        lambda: view(stream(rules=(Rule("few", "xs < 3"),))),
        r"rule 'few' of stream 'typed' is 'xs < 3' of xs array<int>, which Spark cannot compute: .*ARRAY<INT>",
    ),
    "where": (lambda: view(stream(), where="st > 3"), r"view 'seen' has an expression .*st > 3.*STRUCT"),
    "aggregate": (
        lambda: view(stream(), aggregates={"v": Aggregate("percentile(xs, 0.5)", "median of lists")}),
        r"view 'seen' has an expression .*percentile\(xs.*ARRAY<INT>",
    ),
    "gap": (
        lambda: Windowed("seen", stream(), SessionWindow(seconds_of="xs"), {"n": agg.count()}),
        r"view 'seen' has an expression .*xs.*ARRAY<INT>",
    ),
    "selection": (
        lambda: Selected("chosen", stream(), {"twice": "xs * 2"}),
        r"selection 'chosen' has an expression .*xs \* 2.*ARRAY<INT>",
    ),
    "join": (
        lambda: Joined("met", stream(), stream(), ("id",), ("0 seconds", "1 hour"), where="left_xs = right_n"),
        r"join 'met' has an expression .*left_xs = right_n.*ARRAY<INT>",
    ),
}


def test_each_is_refused_with_its_expression_and_types_and_nothing_is_read(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    for name, (declare, says) in REFUSED.items():
        operator = declare()
        with pytest.raises(DeclarationError, match=says):
            run(spark, lake, Pipeline(streams=operator.reads, operators=(operator,)), [{"id": name}])
    assert not Path(lake.log(stream())).exists()

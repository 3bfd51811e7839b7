"""TPC-H in whole pipelines: streams of revisions and deletes, a view a query, and DuckDB as the judge of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, View
from streaming.audit.laws import audit
from streaming.declare import CURRENT, Operator
from streaming.operators.runtime import frame
from streaming.sql import relations_in
from streaming.tables import delta
from tests.support.instants import at
from tests.support.runs import run
from tests.support.sql_views import Feed, Judge, Row
from tests.support.tpch import KEYS, ORDERS_OF_CUSTOMERS, SCHEMA, query_files, specified, tpch
from tidemark.testing import land_all

SEED = 2
REFRESHES = 10
"""Refreshes that come in one batch a stream, after that of the population."""
DIFFERENT = ("q01", "q03", "q05", "q09", ORDERS_OF_CUSTOMERS, "q13", "q18", "q21")
FILES = query_files()


def stream_of(table: str) -> Stream:
    """A stream of the revisions of a table's rows, with three columns beside the table's."""
    columns = ", ".join(f"{name} {type_.replace('varchar', 'string')}" for name, type_ in SCHEMA[table].items())
    return Stream(
        name=table,
        source=Files(f"landing/{table}"),
        format=Json(f"{columns}, {table}_version bigint, {table}_at timestamp, {table}_op string"),
        event_time=f"{table}_at",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
        key=KEYS[table],
        sequence=f"{table}_version",
        deletes=f"{table}_op = 'd'",
    )


def pipeline_of(names: Sequence[str]) -> Pipeline:
    streams = {table: stream_of(table) for table in SCHEMA}
    views: dict[str, View] = {}
    for name in sorted(names, key=lambda name: name == "q13"):
        sources: dict[str, Stream | Operator] = {**streams, **views}
        of = tuple(sources[each] for each in relations_in(FILES[name].sql))
        views[name] = View(name, FILES[name].sql, of=of, key=FILES[name].key)
    return Pipeline(name="tpch", streams=tuple(streams.values()), operators=tuple(views.values()))


def json_value(value: object) -> object:
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if isinstance(value, date) else value


def revisions(feed: Feed, table: str, steps: range) -> list[dict[str, Any]]:
    """The revisions of a table's rows that some refreshes bring, deletes among them."""
    landed = []
    for step in steps:
        newest: dict[Row, tuple[Row, str]] = {}
        for row, begin, end in feed.rows[table]:
            values = dict(zip(SCHEMA[table], row, strict=True))
            key = tuple(values[name] for name in KEYS[table])
            if begin == step:
                newest[key] = (row, "u")
            elif end == step:
                newest.setdefault(key, (row, "d"))
        for row, op in newest.values():
            values = {name: json_value(value) for name, value in zip(SCHEMA[table], row, strict=True)}
            own = {"version": step, "at": at(step).isoformat(), "op": op}
            landed.append({**values, **{f"{table}_{name}": value for name, value in own.items()}})
    return landed


def is_same(one: object, other: object) -> bool:
    """True where values are equal; DuckDB has doubles of averages and shares, Spark decimals of six digits or more."""
    if isinstance(other, float):
        assert isinstance(one, Decimal)
        return math.isclose(one, other, rel_tol=1e-12, abs_tol=1e-6)
    return one == other


def differing(rows: Sequence[Row], wanted: Sequence[Row]) -> list[tuple[Row, Row]]:
    assert len(rows) == len(wanted)
    pairs = zip(sorted(rows, key=by_exact_values), sorted(wanted, key=by_exact_values), strict=True)
    return [pair for pair in pairs if not all(map(is_same, *pair))]


def by_exact_values(row: Row) -> list[str]:
    """The texts of the values that are no numbers with digits behind the point."""
    return [str(value) for value in row if not isinstance(value, (float, Decimal))]


def check(spark: SparkSession, lake: Lake, names: Sequence[str]) -> None:
    """Drain the population, then the refreshes, and compare what is current of each view with DuckDB's result."""
    feed, judge, pipeline = tpch(SEED, REFRESHES), Judge(SCHEMA), pipeline_of(names)
    judge.load(feed)
    streams = {stream.name: stream for stream in pipeline.streams}
    results: dict[str, list[list[Row]]] = {name: [] for name in names}
    for steps in (range(1), range(1, REFRESHES + 1)):
        for table, stream in streams.items():
            rows = revisions(feed, table, steps)
            if rows:
                land_all(lake, stream, rows)
        run(spark, lake, pipeline)
        judge.move_to(steps[-1])
        for view in pipeline.operators:
            columns = [f"`{name}`" for name in view.columns]
            wanted = [*judge.rows(specified(view.name)).elements()]
            computed = frame(spark, lake, view).select(*columns).collect()
            published = delta.read(spark, lake.table(view, CURRENT)).select(*columns).collect()
            for rows_there in (computed, published):
                assert differing([tuple(row) for row in rows_there], wanted) == [], (view.name, steps)
            results[view.name].append(wanted)
    for name, (population, refreshed) in results.items():
        assert population and sorted(population) != sorted(refreshed), f"{name} shows nothing"
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_queries_of_different_kinds_are_what_is_computed_anew(spark: SparkSession, lake: Lake) -> None:
    check(spark, lake, DIFFERENT)


@pytest.mark.long
def test_all_queries_are_what_is_computed_anew(spark: SparkSession, lake: Lake) -> None:
    check(spark, lake, tuple(FILES))

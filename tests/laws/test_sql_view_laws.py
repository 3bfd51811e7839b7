"""Law of SQL views: their rows are those of the query over what stands, whatever came, was changed, gone or killed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, View
from streaming.audit.laws import audit
from streaming.changes import Publishing
from streaming.declare import CURRENT
from streaming.operators.runtime import frame
from streaming.service.run import Run
from streaming.tables import delta
from tests.laws.cases import PIPELINES
from tests.support.instants import at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tests.support.seeds import draws
from tests.support.sql_views import CLASSES, SCHEMA, spark_to_duckdb
from tidemark.testing import land_all

Rows = dict[str, dict[int, dict[str, Any]]]
"""The newest revision of each row, by relation and key."""

RELATIONS = ("orders", "customers", "payments")


def stream_of(relation: str) -> Stream:
    """A stream with a key of its own, whose rows have the columns of a relation."""
    columns = ", ".join(f"{name} {type_.replace('varchar', 'string')}" for name, type_ in SCHEMA[relation].items())
    own = f"{relation}_key bigint, {relation}_version bigint, {relation}_at timestamp, {relation}_op string"
    return Stream(
        name=relation,
        source=Files(f"landing/{relation}"),
        format=Json(f"{columns}, {own}"),
        event_time=f"{relation}_at",
        clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
        key=(f"{relation}_key",),
        sequence=f"{relation}_version",
        deletes=f"{relation}_op = 'd'",
    )


STREAMS = {relation: stream_of(relation) for relation in RELATIONS}


def drawn(chance: random.Random, rows: Rows) -> dict[str, list[dict[str, Any]]]:
    """Changes of some relations: new rows, others of the same key, older revisions and deletes; `rows` keeps them."""
    landed: dict[str, list[dict[str, Any]]] = {}
    for relation in chance.sample(RELATIONS, chance.choice((1, 2, 3))):
        landed[relation] = []
        for _ in range(chance.randint(1, 5)):
            key, version = chance.randint(1, 8), chance.randint(1, 9)
            values = {
                name: chance.choice((None, "DE", "FR")) if type_ == "varchar" else chance.choice((None, 0, 1, 2, 3, 7))
                for name, type_ in SCHEMA[relation].items()
            }
            own = {"key": key, "version": version, "at": at(chance.randint(0, 50)).isoformat(), "op": "u"}
            own["op"] = "d" if chance.random() < 0.25 else "u"
            row = {**values, **{f"{relation}_{name}": value for name, value in own.items()}}
            landed[relation].append(row)
            before = rows[relation].get(key)
            if before is None or before[f"{relation}_version"] < version:
                rows[relation][key] = row
    return landed


def expected(sql: str, rows: Rows) -> Counter[tuple[Any, ...]]:
    """The rows of a query over what stands, by DuckDB."""
    with duckdb.connect() as database:
        for relation, stream in STREAMS.items():
            columns = {**SCHEMA[relation], **dict.fromkeys(stream.columns[len(SCHEMA[relation]) :], "varchar")}
            database.execute(f"create table {relation} ({', '.join(f'{name} {of}' for name, of in columns.items())})")
            for row in rows[relation].values():
                if row[f"{relation}_op"] == "u":
                    database.execute(
                        f"insert into {relation} values ({', '.join('?' for _ in columns)})", [row[c] for c in columns]
                    )
        return Counter(map(tuple, database.execute(spark_to_duckdb(sql)).fetchall()))


def chosen(chance: random.Random, number: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    """So many of the queries that read only these relations, and no column that is of the streams alone."""
    there = {
        name: query
        for name, query in CLASSES.items()
        # Which of equal rows a limit leaves is for the engine to choose.
        if not {"grades", "limit"} & {*query[0].split()}
        and "*" not in query[0].replace("count(*)", "").replace(" * 2", "")
    }
    return {name: there[name] for name in chance.sample(sorted(there), number)}


def dies(commit: int, dying: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Steps that die at a commit, once all logs are written."""
    stepping = Run.step_all

    def step_all(running: Run) -> None:
        killed_at(commit, dying)
        stepping(running)

    return step_all


SEEDS = range(max(20, PIPELINES))
"""A hundred by `make prove`."""


@pytest.mark.parametrize("seed", [pytest.param(each, marks=[pytest.mark.long] * (each > 0)) for each in SEEDS])
def test_rows_of_a_view_are_those_of_the_query_over_what_stands(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"SQL views {seed}")
    # Each view is computed once more for each batch: the case of every day has one.
    queries = chosen(chance, 3 if seed else 1)
    views = {
        name: View(f"view_{place}", sql, of=tuple(STREAMS.values()), key=key)
        for place, (name, (sql, key)) in enumerate(queries.items())
    }
    pipeline = Pipeline(name="views", streams=tuple(STREAMS.values()), operators=tuple(views.values()))
    rows: Rows = {relation: {} for relation in RELATIONS}
    for stream in STREAMS.values():
        Path(stream.source.location(lake)).mkdir(parents=True)
    for _ in range(3):
        for relation, changed in drawn(chance, rows).items():
            land_all(lake, STREAMS[relation], changed)
        with monkeypatch.context() as dying, suppress(Killed):
            if chance.random() < 0.6:
                dying.setattr(Run, "step_all", dies(chance.randint(1, 20), dying))
            run(spark, lake, pipeline)
    # Each log needs a batch before a view of all of them steps.
    for relation, stream in STREAMS.items():
        row = {
            f"{relation}_key": 99,
            f"{relation}_version": 1,
            f"{relation}_at": at(1).isoformat(),
            f"{relation}_op": "u",
        }
        full = {**dict.fromkeys(stream.columns), **row}
        rows[relation][99] = full
        land_all(lake, stream, [row])
    run(spark, lake, pipeline)
    for name, view in views.items():
        columns = [f"`{column}`" for column in view.columns]
        Publishing(lake, view).publish(spark)
        wanted = expected(queries[name][0], rows)
        computed = frame(spark, lake, view).select(*columns).collect()
        published = delta.read(spark, lake.table(view, CURRENT)).select(*columns).collect()
        assert Counter(map(tuple, computed)) == Counter(map(tuple, published)) == wanted, (name, json.dumps(rows))
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []


def test_the_oracle_reads_only_the_newest_revisions_that_are_not_gone() -> None:
    rows: Mapping[str, dict[int, dict[str, Any]]] = {relation: {} for relation in RELATIONS}
    for key, op in ((1, "u"), (2, "d")):
        rows["orders"][key] = {**dict.fromkeys(STREAMS["orders"].columns), "day": key, "orders_op": op}
    assert expected("select day, count(*) from orders group by day", dict(rows)) == Counter({(1, 1): 1})

"""Models of dbt and SQLMesh behind a view: over the open lake they restate the days that changed, and no others."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pytest
from pyspark.sql import SparkSession

from docs.examples.restated_by_dbt import Dbt, revenue_by_day
from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    RowChoice,
    Stream,
    Tumbling,
    Windowed,
    agg,
    changed,
    retract,
)
from streaming.audit import audit
from streaming.changes import publish
from streaming.declare import CURRENT
from streaming.operations import rebuild
from streaming.service.drain import drain
from tests.support.feeds import land_all
from tests.support.instants import NOW
from tests.support.runs import run
from tests.support.services import starting
from tidemark import LakeResource
from tidemark.testing import correct

PROJECT = Path(__file__).parents[2]
pytestmark = [pytest.mark.long, pytest.mark.processes]

orders = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("customer string not null, placed_at timestamp not null, amount decimal(10, 2)"),
    event_time="placed_at",
    clock=BoundedOutOfOrderness("10 minutes", max_ahead="30 days"),
)
orders_by_hour = Windowed(
    "orders_by_hour", orders, Tumbling("1 hour"), {"orders": agg.count(), "revenue": agg.sum("amount")}
)
PIPELINE = Pipeline(orders, (orders_by_hour,))
AFTERWARDS = datetime(2026, 3, 9, tzinfo=UTC)
"""When no receipt of the story is of a time to come."""


def order(day: int, hour: int, amount: float) -> dict[str, Any]:
    return {"customer": "ann", "placed_at": f"2026-01-{day:02}T{hour:02}:05:00Z", "amount": amount}


@pytest.fixture(scope="session")
def dbt() -> str:
    """The command, in a Python of its own that `make test-all` makes."""
    with starting("dbt"):
        command = PROJECT / ".tidemark" / "dbt" / "bin" / "dbt"
        if not command.exists():
            raise FileNotFoundError(f"there is no {command}: run make test-all, or make .tidemark/dbt/.installed")
    return str(command)


@pytest.fixture(scope="session")
def sqlmesh() -> str:
    """The command, in a Python of its own that `make test-all` makes."""
    with starting("SQLMesh"):
        command = PROJECT / ".tidemark" / "sqlmesh" / "bin" / "sqlmesh"
        if not command.exists():
            raise FileNotFoundError(f"there is no {command}: run make test-all, or make .tidemark/sqlmesh/.installed")
    return str(command)


@pytest.fixture
def project(dbt: str, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project of `deploy/dbt/example`, with the package beside it."""
    shutil.copytree(PROJECT / "deploy" / "dbt", tmp_path / "dbt")
    folder = tmp_path / "dbt" / "example"
    monkeypatch.setenv("TIDEMARK_HOME", lake.root)
    monkeypatch.setenv("ACME_DATABASE", str(tmp_path / "acme.duckdb"))
    monkeypatch.setenv("DBT_SEND_ANONYMOUS_USAGE_STATS", "false")
    subprocess.run([dbt, "deps", "--quiet"], cwd=folder, check=True)
    return folder


def built(model: str) -> list[tuple[Any, ...]]:
    """The rows of a model, as they are in its database."""
    with duckdb.connect(os.environ["ACME_DATABASE"], read_only=True) as database:
        return database.execute(f"select * from {model} order by 1").fetchall()


def expected(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    """Revenue of each day by Spark, of all hours that are current."""
    hours = spark.read.format("delta").load(lake.path("orders", "orders_by_hour_current"))
    hours.createOrReplaceTempView("hours")
    rows = spark.sql("select date(window_start), sum(orders), sum(revenue) from hours group by 1 order by 1")
    return [tuple(row) for row in rows.collect()]


def test_a_model_restates_the_days_that_late_rows_changed_and_no_others(
    spark: SparkSession, lake: Lake, dbt: str, project: Path
) -> None:
    """```
    in time   5th 09:05, 6th 09:05, 14th 09:05 and 11:05    all days are built
    late      5th 09:05                                      the 5th is built again, and its week
    by hand   the order of the 6th is taken back             the 6th is gone, and its week is built again
    ```
    """

    def build(since: int | None) -> int:
        told = changed(PIPELINE, since=-1 if since is None else since, lake=lake)
        variables = {} if since is None else {"changed": {"orders_by_hour": told.document()}}
        command = [dbt, "run", "--quiet", "--profiles-dir", ".", "--vars", json.dumps(variables)]
        subprocess.run(command, cwd=project, check=True)
        assert [row[:3] for row in built("revenue_by_day")] == expected(spark, lake)
        return told.revision

    run(spark, lake, PIPELINE, [order(5, 9, 1), order(6, 9, 2), order(14, 9, 4), order(14, 11, 8)])
    known = build(None)
    first = {str(day): by for day, *_, by in built("revenue_by_day")}
    weeks = {str(week): by for week, *_, by in built("revenue_by_week")}
    assert (len(first), len(weeks), len({*first.values(), *weeks.values()})) == (3, 2, 1)

    run(spark, lake, PIPELINE, [order(5, 9, 16)])
    assert correct(spark, lake, orders_by_hour, lambda: NOW)
    publish(spark, lake, orders_by_hour)
    known = build(known)
    second = {str(day): by for day, *_, by in built("revenue_by_day")}
    assert {day for day, by in second.items() if by != first[day]} == {"2026-01-05"}
    assert {str(week)[:10] for week, *_, by in built("revenue_by_week") if by != weeks[str(week)]} == {"2026-01-05"}

    retract(spark, lake, PIPELINE, orders, RowChoice(where="amount = 2"), "a test", "the test", lambda: NOW)
    assert correct(spark, lake, orders_by_hour, lambda: NOW)
    publish(spark, lake, orders_by_hour)
    build(known)
    third = {str(day): by for day, *_, by in built("revenue_by_day")}
    assert third == {day: by for day, by in second.items() if day != "2026-01-06"}


def test_sqlmesh_restates_the_days_that_late_rows_changed_and_no_others(
    spark: SparkSession, lake: Lake, sqlmesh: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """```
    in time   5th 09:05, 6th 09:05, 14th 09:05 and 11:05    all days are built
    late      5th 09:05                                      the 5th is built again
    by hand   the order of the 6th is taken back             the 6th is gone
    ```
    """
    shutil.copytree(PROJECT / "deploy" / "sqlmesh", tmp_path / "sqlmesh")
    monkeypatch.setenv("TIDEMARK_HOME", lake.root)
    monkeypatch.setenv("ACME_DATABASE", str(tmp_path / "acme.duckdb"))
    monkeypatch.setenv("MAX_FORK_WORKERS", "1")
    monkeypatch.setenv("SQLMESH__DISABLE_ANONYMIZED_ANALYTICS", "true")

    def build(*restated: str) -> dict[str, Any]:
        command = [sqlmesh, "plan", "--auto-apply", "--no-prompts", *restated]
        subprocess.run(command, cwd=tmp_path / "sqlmesh", check=True)
        rows = built("acme.acme.revenue_by_day")
        return {str(day): at for day, *_, at in rows}

    def restate(since: int) -> tuple[int, dict[str, Any]]:
        told = changed(PIPELINE, since=since, lake=lake)
        for day in map(str, told.parts["_day"].to_pylist()):
            at = build("--restate-model", "acme.revenue_by_day", "--start", day, "--end", day)
        assert [row[:3] for row in built("acme.acme.revenue_by_day")] == expected(spark, lake)
        return told.revision, at

    run(spark, lake, PIPELINE, [order(5, 9, 1), order(6, 9, 2), order(14, 9, 4), order(14, 11, 8)])
    known, first = changed(PIPELINE, lake=lake).revision, build()
    assert [row[:3] for row in built("acme.acme.revenue_by_day")] == expected(spark, lake)

    run(spark, lake, PIPELINE, [order(5, 9, 16)])
    assert correct(spark, lake, orders_by_hour, lambda: NOW)
    publish(spark, lake, orders_by_hour)
    known, second = restate(known)
    assert {day for day, at in second.items() if at != first[day]} == {"2026-01-05"}

    retract(spark, lake, PIPELINE, orders, RowChoice(where="amount = 2"), "a test", "the test", lambda: NOW)
    assert correct(spark, lake, orders_by_hour, lambda: NOW)
    publish(spark, lake, orders_by_hour)
    _, third = restate(known)
    assert third == {day: at for day, at in second.items() if day != "2026-01-06"}


def test_a_model_that_nobody_tells_what_changed_is_not_built(
    spark: SparkSession, lake: Lake, dbt: str, project: Path
) -> None:
    run(spark, lake, PIPELINE, [order(5, 9, 1), order(5, 11, 2)])
    command = [dbt, "run", "--profiles-dir", "."]
    assert subprocess.run(command, cwd=project, check=False).returncode == 0
    refused = subprocess.run(command, cwd=project, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "nobody says what changed of orders_by_hour. Give --vars" in refused.stdout


def test_an_asset_of_dagster_goes_on_from_the_revision_of_its_last_run(
    spark: SparkSession, lake: Lake, dbt: str, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = tmp_path / "pipelines_of_orders"
    declared.mkdir()
    (declared / "__init__.py").touch()
    (declared / "orders.py").write_text(f"from {__name__} import PIPELINE as pipeline\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_PIPELINES", declared.name)
    resources = {"lake": LakeResource(home=lake.root), "dbt": Dbt(command=dbt, project=str(project))}
    with dg.DagsterInstance.ephemeral() as instance:

        def days() -> list[str]:
            made = dg.materialize([revenue_by_day], resources=resources, instance=instance)
            (event,) = made.get_asset_materialization_events()
            told: list[str] = event.materialization.metadata["days"].value  # type: ignore[assignment]
            assert [row[:3] for row in built("revenue_by_day")] == expected(spark, lake)
            return told

        run(spark, lake, PIPELINE, [order(5, 9, 1), order(6, 9, 2), order(6, 11, 4)])
        assert days() == ["2026-01-05", "2026-01-06"]
        run(spark, lake, PIPELINE, [order(5, 9, 16)])
        assert correct(spark, lake, orders_by_hour, lambda: NOW)
        publish(spark, lake, orders_by_hour)
        assert days() == ["2026-01-05"]
        assert days() == []


def test_the_model_of_the_story_restates_the_two_days_that_its_changed_rule_left(
    spark: SparkSession, lake: Lake, dbt: str, project: Path
) -> None:
    """The view, the receipts and the model of the page, and one receipt of March 4th besides.

    ```
    receipts      2nd 40 and 25, 3rd 10, 4th 15       then 4000 and 1000 in the place of 40 and 10
    dbt           2nd 4025, 3rd 1000, 4th 15
    where         amount <= 500                       takings of Bonn are gone
    dbt           2nd 25, 4th 15                      of which the 2nd alone is built again
    ```
    """
    page = (PROJECT / "docs" / "wrong-number.md").read_text()
    declared: dict[str, Any] = {}
    exec(_block(page, "python", "receipts = Stream"), declared)
    first, then = (
        [json.loads(line) for line in block.splitlines()] for block in re.findall(r"<<'END'\n(.*?)\nEND", page, re.S)
    )
    shutil.rmtree(project / "models")
    (project / "models").mkdir()
    (project / "models" / "takings_by_day.sql").write_text(_block(page, "", 'source("tills", "takings_current")'))
    place = {"plugin": "delta", "delta_table_path": lake.table(declared["takings"], CURRENT)}
    source = {"name": "tills", "tables": [{"name": "takings_current", "config": place}]}
    (project / "models" / "sources.yml").write_text(json.dumps({"sources": [source]}))

    def build(pipeline: Pipeline, since: int | None = None) -> tuple[int, dict[str, tuple[Any, ...]]]:
        told = changed(pipeline, since=-1 if since is None else since, lake=lake)
        variables = {} if since is None else {"changed": {"takings": told.document()}}
        command = [dbt, "run", "--quiet", "--profiles-dir", ".", "--vars", json.dumps(variables)]
        subprocess.run(command, cwd=project, check=True)
        return told.revision, {str(day)[:10]: (amount, by) for day, amount, by in built("takings_by_day")}

    pipeline, takings = declared["pipeline"], declared["takings"]
    fourth = {"id": "k-3", "version": 1, "shop": "Kiel", "at": "2026-03-04T10:00:00Z", "amount": 15}
    for receipts in ([*first, fourth], then):
        land_all(lake, declared["receipts"], receipts)
        drain(spark, lake, pipeline, now=lambda: AFTERWARDS)
    assert correct(spark, lake, takings, lambda: AFTERWARDS) == ["2026-03-02", "2026-03-03"]
    publish(spark, lake, takings)
    known, before = build(pipeline)
    assert {day: amount for day, (amount, _) in before.items()} == {
        "2026-03-02": 4025,
        "2026-03-03": 1000,
        "2026-03-04": 15,
    }
    left = replace(takings, where="amount <= 500")
    changed_pipeline = replace(pipeline, operators=(left,))
    rebuild(spark, lake, changed_pipeline, left, now=lambda: AFTERWARDS)
    publish(spark, lake, left)
    _, after = build(changed_pipeline, known)
    assert {day: amount for day, (amount, _) in after.items()} == {"2026-03-02": 25, "2026-03-04": 15}
    assert {day for day, row in after.items() if row != before[day]} == {"2026-03-02"}
    assert [finding for finding in audit(spark, lake, changed_pipeline) if not finding.holds] == []


def _block(page: str, language: str, with_text: str) -> str:
    """The block of a page, in this language, that has a text in it."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page, re.S | re.M)
    return next(text for of, text in blocks if of == language and with_text in text)

"""What is declared is an asset, and declaring it touches nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import dagster as dg
import pytest

from platform_assets.definitions import defs
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from platform_assets.specs import Layer
from platform_assets.tags import LAYER_TAG
from quality import suites_for
from streaming import (
    Enriched,
    History,
    Joined,
    Json,
    Keyed,
    LookupRequest,
    Pipeline,
    Selected,
    SessionWindow,
    Stream,
    Table,
    Then,
    Tumbling,
    View,
    Windowed,
    WindowJoined,
    agg,
    declared_pipelines,
)
from streaming.clocks.clock import BoundedOutOfOrderness
from streaming.service.alerts import ALERTS
from streaming.sources.files import Files

GRAPH = defs.resolve_asset_graph()


def parents(*path: str) -> set[str]:
    return {key.to_user_string() for key in GRAPH.get(dg.AssetKey(path)).parent_keys}


def test_definitions_load() -> None:
    dg.Definitions.validate_loadable(defs)


@pytest.mark.parametrize("pipeline", declared_pipelines().values(), ids=lambda pipeline: pipeline.name)
def test_every_table_of_every_pipeline_is_an_asset(pipeline: Pipeline) -> None:
    tables = {f"{pipeline.name}/{name}" for name in ("source", "log", "rejected")}
    for view in pipeline.views:
        tables |= {f"{pipeline.name}/{view.name}{suffix}" for suffix in ("", "_late", "_corrections", "_current")}
    assert tables <= {key.to_user_string() for key in GRAPH.get_all_asset_keys()}


def test_lineage_follows_the_path_of_an_event() -> None:
    assert parents("flights", "source") == set()
    assert parents("flights", "log") == {"flights/source"}
    assert parents("flights", "rejected") == {"flights/log"}
    assert parents("flights", "departures_by_origin") == {"flights/log"}
    assert parents("flights", "departures_by_origin_late") == {"flights/log"}
    assert parents("flights", "departures_by_origin_corrections") == {
        "flights/log",
        "flights/departures_by_origin_late",
    }
    assert parents("flights", "departures_by_origin_current") == {
        "flights/departures_by_origin",
        "flights/departures_by_origin_corrections",
    }
    assert parents("reports", "on_time_performance") == {"flights/departures_by_origin_current"}


def test_a_stream_that_follows_a_table_is_behind_it_in_the_graph() -> None:
    (upstream,) = (pipeline for pipeline in declared_pipelines().values() if pipeline.name == "flights")
    view = upstream.views[0]
    chained = []
    for name, source in (
        ("followed_log", Table(upstream.stream)),
        ("followed_view", Table(view)),
        ("followed_first", Then(Table(view), Files("live"))),
        ("elsewhere", Table("s3://bucket/table")),
    ):
        stream = Stream(name, source, Json("at timestamp"), event_time="at", clock=BoundedOutOfOrderness("1 hour"))
        chained.append(Pipeline(stream, (Windowed(f"{name}_rows", stream, Tumbling("1 hour"), {"n": agg.count()}),)))
    parts = [pipeline_definitions(pipeline) for pipeline in (upstream, *chained)]
    graph = dg.Definitions.merge(dg.Definitions(resources=default_resources()), *parts).resolve_asset_graph()

    def behind(name: str) -> set[str]:
        return {key.to_user_string() for key in graph.get(dg.AssetKey([name, "source"])).parent_keys}

    assert behind("followed_log") == {"flights/log"}
    assert behind("followed_view") == {f"flights/{view.name}"}
    assert behind("followed_first") == {f"flights/{view.name}"}
    assert behind("elsewhere") == set()


def test_every_asset_is_in_the_group_of_its_pipeline_and_has_a_layer_a_kind_an_owner_and_a_description() -> None:
    for key in GRAPH.get_all_asset_keys():
        node = GRAPH.get(key)
        layer = node.tags[LAYER_TAG]
        assert (node.group_name, layer in get_args(Layer)) == ("flights", True), key
        assert len(node.kinds) > 1 and layer in node.kinds and node.owners and node.description, key


def schema(*path: str) -> dict[str, tuple[str, str | None]]:
    """Type and description of each column, as the definition of an asset tells them."""
    columns = GRAPH.get(dg.AssetKey(path)).metadata["dagster/column_schema"].columns
    return {column.name: (column.type, column.description) for column in columns}


def test_every_column_of_a_table_says_what_it_is() -> None:
    view = schema("flights", "departures_by_origin")
    assert view["mean_dep_delay"][1] == "Mean of dep_delay: `avg(dep_delay)`. From flights/log: dep_delay."
    assert view["origin"][1] == "Key."  # handed on under its name
    assert view["window_end"] == ("timestamp", "End of the window, exclusive. From flights/log: sched_dep.")
    log = schema("flights", "log")
    assert log["sched_dep"] == ("timestamp", "Event time.")
    assert (log["flight"][0], str(log["_watermark"][1]).startswith("The stamp")) == ("bigint", True)
    for path in [("flights", name) for name in ("log", "rejected", "departures_by_origin_late")]:
        assert {"sched_dep", "_watermark", "_batch"} <= set(schema(*path))
    assert "_late_rows" in schema("flights", "departures_by_origin_corrections")
    assert {"_reason", "_revision"} <= set(schema("flights", "departures_by_origin_current"))


visits = Stream(
    "visits",
    Files("landing/visits"),
    Json("id string, version bigint, at timestamp"),
    event_time="at",
    clock=BoundedOutOfOrderness("1 hour"),
)


def count_visits(key: Any, row: Any) -> None:
    key.emit(n=1)


def answer(row: Any, request: LookupRequest) -> dict[str, Any]:
    return {"answer": row.id}


def commands(graph: dg.AssetGraph) -> dict[str, str]:
    """The command on each asset that has one, which the UI shows as a block to be copied."""
    told = {key.path[-1]: graph.get(key).metadata.get("tidemark/why") for key in graph.get_all_asset_keys()}
    markdown = {name: why for name, why in told.items() if why is not None}
    assert all(isinstance(why, dg.MarkdownMetadataValue) for why in markdown.values())
    return {name: why.value.split("```")[1].strip().removeprefix("tidemark why ") for name, why in markdown.items()}


def test_results_and_reports_name_the_command_that_explains_their_numbers() -> None:
    key = "origin=VALUE window_start=VALUE window_end=VALUE"
    assert commands(GRAPH) == {
        "departures_by_origin": f"flights/departures_by_origin --first {key}",
        "departures_by_origin_current": f"flights/departures_by_origin {key}",
        "departures_by_origin_corrections": f"flights/departures_by_origin {key}",
        "on_time_performance": "on_time_performance COLUMN=VALUE",
        "on_time_performance_carriers": "on_time_performance COLUMN=VALUE",
    }


def test_results_of_every_kind_of_operator_name_the_command_with_the_columns_of_their_key() -> None:
    rows = replace(visits, name="rows", key=("id",), sequence="version")
    operators = (
        Windowed("sessions", visits, SessionWindow("1 hour"), {"n": agg.count()}, by=("id",)),
        Joined("pairs", visits, rows, on=("id",), between=("0 seconds", "1 hour")),
        WindowJoined("joined", visits, rows, on=("id",), window=Tumbling("1 hour")),
        Keyed("counts", visits, ("id",), "n int", "n int", count_visits),
        Selected("ids", visits, select=("id",)),
        Enriched("asked", visits, answer, {"answer": "string"}, select=("id",)),
        History("intervals", rows),
        View("totals", sql="select id, count(*) as n from rows group by id", of=(rows,), key=("id",)),
        View("all_of_them", sql="select count(*) as n from rows", of=(rows,)),
    )
    pipeline = Pipeline(name="site", streams=(visits, rows), operators=operators)
    parts = [dg.Definitions(resources=default_resources()), pipeline_definitions(pipeline)]
    told = commands(dg.Definitions.merge(*parts).resolve_asset_graph())
    window = "id=VALUE window_start=VALUE window_end=VALUE"
    results = {operator.name: told[operator.name] for operator in operators}
    assert results == {
        "sessions": f"site/sessions --first {window}",
        "pairs": "site/pairs id=VALUE left_version=VALUE left_at=VALUE right_version=VALUE right_at=VALUE",
        "joined": f"site/joined --first {window}",
        "counts": "site/counts id=VALUE _at=VALUE",
        "ids": "site/ids id=VALUE",
        "asked": "site/asked id=VALUE answer=VALUE",
        "intervals": "site/intervals id=VALUE",
        "totals": "site/totals id=VALUE",
        "all_of_them": "site/all_of_them",
    }
    assert told["intervals_current"] == "site/intervals id=VALUE"


def test_a_column_is_followed_from_what_is_current_to_what_landed() -> None:
    def computed_from(table: str, column: str) -> set[tuple[str, str]]:
        lineage = GRAPH.get(dg.AssetKey(["flights", table])).metadata["dagster/column_lineage"]
        return {(dep.asset_key.path[-1], dep.column_name) for dep in lineage.deps_by_column.get(column, [])}

    view = "departures_by_origin"
    assert computed_from(f"{view}_current", "mean_dep_delay") == {
        (view, "mean_dep_delay"),
        (f"{view}_corrections", "mean_dep_delay"),
    }
    for table in (view, f"{view}_corrections"):
        assert computed_from(table, "mean_dep_delay") == {("log", "dep_delay")}
        assert computed_from(table, "window_start") == {("log", "sched_dep")}
        assert computed_from(table, "flights") == set()  # a number of rows is of no column
    assert computed_from("log", "dep_delay") == {("source", "dep_delay")}
    assert computed_from("log", "_watermark") == set()


def test_every_expectation_is_a_blocking_check_and_an_alert_is_none() -> None:
    pipeline = declared_pipelines()["flights"]
    expected = {
        (f"flights/{role}", expectation.name)
        for role, suite in suites_for(pipeline).items()
        for expectation in suite.expectations
    }
    checks = {(key.asset_key.to_user_string(), key.name) for key in GRAPH.asset_check_keys}
    assert expected <= checks
    assert {key.name for key in GRAPH.asset_check_keys if not GRAPH.get(key).blocking} == set(ALERTS)


def test_the_jobs_are_there_and_the_automations_run_by_default() -> None:
    repository = defs.get_repository_def()
    jobs = {"flights_drain", "flights_corrections", "flights_repair", "flights_stream", "on_time_performance"}
    assert jobs <= set(repository.job_names)
    off = {sensor.name for sensor in repository.sensor_defs if sensor.default_status != dg.DefaultSensorStatus.RUNNING}
    assert off == {"flights_arrivals"}  # who drains is for people to decide
    assert all(one.default_status == dg.DefaultScheduleStatus.RUNNING for one in repository.schedule_defs)


def test_a_new_declaration_needs_no_asset_written_by_hand() -> None:
    stream = Stream("taps", Files("landing/taps"), Json("at timestamp"), "at", BoundedOutOfOrderness("1 minute"))
    views = tuple(Windowed(name, stream, Tumbling("1 hour"), {"rows": agg.count()}) for name in ("hourly", "again"))
    merged = dg.Definitions.merge(
        pipeline_definitions(Pipeline(stream, views)), dg.Definitions(resources=default_resources())
    )
    dg.Definitions.validate_loadable(merged)
    assert len(merged.resolve_asset_graph().get_all_asset_keys()) == 12
    assert {"taps_drain", "taps_corrections", "taps_repair", "taps_stream", "taps_control", "taps_trend"} <= set(
        merged.get_repository_def().job_names
    )


def test_ten_pipelines_are_ten_groups_and_no_two_have_an_asset_in_common() -> None:
    def shop(name: str) -> Pipeline:
        stream = Stream(name, Files(f"landing/{name}"), Json("at timestamp"), "at", BoundedOutOfOrderness("1 minute"))
        return Pipeline(stream, (Windowed("hourly", stream, Tumbling("1 hour"), {"rows": agg.count()}),))

    names = {f"shop_{number}" for number in range(10)}
    merged = dg.Definitions.merge(
        *(pipeline_definitions(shop(name)) for name in names), dg.Definitions(resources=default_resources())
    )
    graph = merged.resolve_asset_graph()
    assert {graph.get(key).group_name for key in graph.get_all_asset_keys()} == names
    for key in graph.get_all_asset_keys():
        related = {graph.get(parent).group_name for parent in graph.get(key).parent_keys}
        assert related <= {graph.get(key).group_name}, key


@pytest.mark.long
def test_the_log_of_a_stream_with_a_contract_has_its_owners_its_version_and_a_check_for_each_of_its_checks() -> None:
    file = Path(__file__).parents[2] / "support" / "contracts" / "orders.odcs.yaml"
    clock = BoundedOutOfOrderness("1 hour")
    orders = Stream.of_contract(file, source=Files("landing/contracted"), clock=clock, name="contracted")
    view = Windowed("per_day", orders, Tumbling("1 day"), {"orders": agg.count()})
    parts = (dg.Definitions(resources=default_resources()), pipeline_definitions(Pipeline(orders, (view,))))
    graph = dg.Definitions.merge(*parts).resolve_asset_graph()
    log = graph.get(dg.AssetKey(["contracted", "log"]))
    assert log.owners == ["team:data", "team:Sales", "ada@shop.example"]
    assert log.metadata["contract"] == "orders 2.1.0 (active)"
    assert log.freshness_policy is not None
    checks = {key.name for key in graph.asset_check_keys if key.asset_key == log.key}
    assert {"unique_order_id", "row_count", "mean_amount", "country_null_values"} <= checks
    assert graph.get(dg.AssetKey(["contracted", "per_day"])).owners == ["team:data"]


def test_importing_the_definitions_starts_nothing_and_reads_nothing(tmp_path: Path) -> None:
    script = """
import sys
import platform_assets.definitions
from pyspark import SparkContext
assert SparkContext._active_spark_context is None
assert "great_expectations" not in sys.modules
"""
    environment = {
        **os.environ,
        "TIDEMARK_HOME": str(tmp_path / "nowhere"),
        "DAGSTER_HOME": str(tmp_path / "dagster"),
        "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []

"""What is declared is an asset, and declaring it touches nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from platform_assets.definitions import defs
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from quality import suites_for
from streaming import Json, Pipeline, Stream, Tumbling, Windowed, agg, declared_pipelines
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
    tables = {f"{pipeline.name}/log", f"{pipeline.name}/rejected"}
    for view in pipeline.views:
        tables |= {f"{pipeline.name}/{view.name}{suffix}" for suffix in ("", "_late", "_corrections")}
    assert tables <= {key.to_user_string() for key in GRAPH.get_all_asset_keys()}


def test_lineage_follows_the_path_of_an_event() -> None:
    assert parents("flights", "rejected") == {"flights/log"}
    assert parents("flights", "departures_by_origin") == {"flights/log"}
    assert parents("flights", "departures_by_origin_late") == {"flights/log"}
    assert parents("flights", "departures_by_origin_corrections") == {
        "flights/log",
        "flights/departures_by_origin_late",
    }
    assert parents("reports", "on_time_performance") == {
        "flights/departures_by_origin",
        "flights/departures_by_origin_corrections",
    }


def test_every_asset_has_a_layer_a_kind_an_owner_and_a_description() -> None:
    for key in GRAPH.get_all_asset_keys():
        node = GRAPH.get(key)
        assert node.group_name in ("event_log", "first_results", "corrections", "reports", "operations"), key
        assert node.kinds and node.owners and node.description, key


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
    assert all(sensor.default_status == dg.DefaultSensorStatus.RUNNING for sensor in repository.sensor_defs)
    assert all(one.default_status == dg.DefaultScheduleStatus.RUNNING for one in repository.schedule_defs)


def test_a_new_declaration_needs_no_asset_written_by_hand() -> None:
    stream = Stream("taps", Files("landing/taps"), Json("at timestamp"), "at", BoundedOutOfOrderness("1 minute"))
    views = tuple(Windowed(name, stream, Tumbling("1 hour"), {"rows": agg.count()}) for name in ("hourly", "again"))
    merged = dg.Definitions.merge(
        pipeline_definitions(Pipeline(stream, views)), dg.Definitions(resources=default_resources())
    )
    dg.Definitions.validate_loadable(merged)
    assert len(merged.resolve_asset_graph().get_all_asset_keys()) == 9
    assert {"taps_drain", "taps_corrections", "taps_repair", "taps_stream", "taps_control", "taps_trend"} <= set(
        merged.get_repository_def().job_names
    )


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

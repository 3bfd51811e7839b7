"""A check in Dagster says whether catalog and lake agree, where a catalog is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from platform_assets.demo.pipelines.flights import pipeline
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.catalogs import CHECK
from platform_assets.resources import default_resources
from streaming.catalogs import CatalogSettings, apply_difference, compare, open_catalog
from streaming.lake import Lake
from tests.support.catalog_servers import TOKEN, RecordedUnity, serving
from tests.support.written_lake import write_flights

KEY = dg.AssetCheckKey(dg.AssetKey(["flights", "log"]), CHECK)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return write_flights(Lake(str(tmp_path / "lake")))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedUnity]:
    recorded = RecordedUnity()
    with serving(recorded):
        for name, value in {"KIND": "unity", "URL": recorded.url, "NAME": "main", "TOKEN": TOKEN}.items():
            monkeypatch.setenv(f"TIDEMARK_CATALOG_{name}", value)
        yield recorded


def definitions(lake: Lake) -> dg.Definitions:
    resources = dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor)
    return dg.Definitions.merge(pipeline_definitions(pipeline), resources)


def checked(lake: Lake, instance: dg.DagsterInstance) -> dg.AssetCheckEvaluation:
    """The check as a run of its own evaluates it."""
    job = dg.define_asset_job("agrees", selection=dg.AssetSelection.checks(KEY))
    with_job = dg.Definitions.merge(definitions(lake), dg.Definitions(jobs=[job]))
    run = with_job.resolve_job_def("agrees").execute_in_process(instance=instance)
    (evaluation,) = run.get_asset_check_evaluations()
    return evaluation


def sync(lake: Lake) -> None:
    with open_catalog(CatalogSettings()) as catalog:
        apply_difference(catalog, lake, compare(catalog, lake, [pipeline]))


def test_the_check_passes_while_catalog_and_lake_agree_and_names_what_differs(
    lake: Lake, server: RecordedUnity, instance: dg.DagsterInstance
) -> None:
    sync(lake)
    agreeing = checked(lake, instance)
    assert agreeing.passed and agreeing.description == f"3 tables in {server.url}/main as in the lake"
    server.tables["main.flights.flights_log"]["comment"] = "Edited by hand."
    del server.tables["main.flights.departures_by_origin"]
    differing = checked(lake, instance)
    assert not differing.passed and differing.severity == dg.AssetCheckSeverity.WARN
    assert differing.description == (
        "not as in the lake: create flights.departures_by_origin; change flights.flights_log (comment); "
        "run `tidemark catalog sync flights`"
    )
    assert {name: value.value for name, value in differing.metadata.items()} == {
        "catalog": f"{server.url}/main",
        "agreeing": 1,
        "differing": 2,
    }


def test_a_catalog_that_is_away_fails_the_check_and_not_the_run(
    lake: Lake, server: RecordedUnity, instance: dg.DagsterInstance
) -> None:
    server.failing = lambda request: True
    evaluation = checked(lake, instance)
    assert not evaluation.passed and "could not run: the unity catalog at" in (evaluation.description or "")


def test_where_no_catalog_is_set_there_is_no_check(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_CATALOG_KIND", raising=False)
    assert KEY not in definitions(lake).resolve_asset_graph().asset_check_keys

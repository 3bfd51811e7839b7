"""Dagster's events carry what catalogs read of an asset: its place, its columns, and what these are computed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.keys import corrections_key, late_key, log_key, rejected_key, table_key
from platform_assets.lineage import lineage_metadata, lineage_of_table
from platform_assets.pipeline.commits import untold_tables
from platform_assets.pipeline.jobs import drain_config
from streaming import Lake
from streaming.declare import CORRECTIONS
from tests.support.departures import CLOSING, FIRST, LATE_ON_1
from tests.support.feeds import land_all
from tests.support.lineage import Told, computed_from, to_file

pytestmark = pytest.mark.usefixtures("spark")

VIEW = table_key(departures_by_origin)


def drain(platform: dg.Definitions, instance: dg.DagsterInstance, config: dict[str, Any]) -> None:
    job = platform.resolve_job_def("flights_drain")
    assert job.execute_in_process(run_config=config, instance=instance).success


@pytest.mark.long
def test_dagster_openlineage_sees_columns_lineage_and_uri_of_a_materialization(
    platform: dg.Definitions, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package itself reads the events, as an instance has it read them, and sends what it understands."""
    events = to_file(tmp_path, monkeypatch)
    land_all(lake, pipeline.stream, FIRST, CLOSING, LATE_ON_1)
    stored = {"module": "dagster._core.storage.event_log", "class": "InMemoryEventLogStorage"}
    storage = {"module": "dagster_openlineage", "class": "OpenLineageEventLogStorage", "config": {"wrapped": stored}}
    with dg.instance_for_test(overrides={"event_log_storage": storage}) as instance:
        drain(platform, instance, drain_config(pipeline))
    told = Told.in_file(events)

    assert told.kinds("flights/log") == ["START", "COMPLETE"]
    log = told.output("flights/log", "flights/log")
    assert log["facets"]["dataSource"]["uri"] == Path(lake.log(pipeline.stream)).as_uri()
    assert computed_from(log, "dep_delay") == {("source", "dep_delay")}
    view = told.output("flights/departures_by_origin", "flights/departures_by_origin")
    assert computed_from(view, "mean_dep_delay") == {("log", "dep_delay")}
    assert {"name": "origin", "type": "string"}.items() <= {
        name: value for name, value in view["facets"]["schema"]["fields"][0].items() if name != "fields"
    }.items()
    late = told.output("flights/departures_by_origin_late", "departures_by_origin_late")
    assert late["facets"]["dataSource"]["uri"] == Path(lake.log(pipeline.stream)).as_uri()
    # The drain itself tells the same by the names of storages.
    assert told.kinds("flights.departures_by_origin") == ["START", "COMPLETE"]
    by_path = told.output("flights.departures_by_origin", "flights/departures_by_origin")
    assert by_path["facets"]["columnLineage"]["fields"].keys() == view["facets"]["columnLineage"]["fields"].keys()


@pytest.mark.long
def test_events_told_from_commits_have_the_lineage_of_those_of_runs_corrected_days_too(
    platform: dg.Definitions,
    instance: dg.DagsterInstance,
    lake: Lake,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = to_file(tmp_path, monkeypatch)
    land_all(lake, pipeline.stream, FIRST, CLOSING, LATE_ON_1)
    drain(platform, instance, drain_config(pipeline))
    assert platform.resolve_job_def("flights_corrections").execute_in_process(instance=instance).success
    stream, view = pipeline.stream, departures_by_origin

    def lineage(of: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, object]:
        event = of.get_latest_materialization_event(key)
        assert event is not None and event.asset_materialization is not None
        metadata = event.asset_materialization.metadata
        return {name: metadata[name].value for name in ("uri", "dagster/uri", "dagster/column_lineage")}

    with dg.DagsterInstance.ephemeral() as other:
        untold_tables(other, lake, pipeline)
        for key in (log_key(stream), rejected_key(stream), VIEW, late_key(view), corrections_key(view)):
            assert lineage(other, key) == lineage(instance, key), key
    expected = lineage_metadata(lineage_of_table(view, CORRECTIONS))
    assert lineage(instance, corrections_key(view)).items() >= expected.items()
    # The correction itself tells of what it has written, too.
    told, job = Told.in_file(events), "flights.departures_by_origin.correct"
    assert told.kinds(job) == ["START", "COMPLETE"]
    corrections = told.output(job, "departures_by_origin_corrections")
    assert corrections["outputFacets"]["outputStatistics"]["rowCount"] == 1
    assert computed_from(corrections, "mean_dep_delay") == {("log", "dep_delay")}

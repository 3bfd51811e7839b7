"""The path of an event as Dagster runs, in process: drain, correct, publish."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, pipeline
from platform_assets.events.evaluations import last_evaluation
from platform_assets.keys import corrections_key, current_keys, late_key, log_key, report_key, source_key, table_key
from platform_assets.pipeline.jobs import corrections_config, drain_config
from platform_assets.specs import UNKNOWN_TYPE
from quality import suites_for
from streaming.lake.lake import Lake
from streaming.tables import delta
from streaming.views.corrections import plan
from tests.support.departures import BROKEN, CLOSING, FIRST, LATE_ON_1, LATE_ON_3, SECOND, THIRD
from tests.support.feeds import land_all

pytestmark = pytest.mark.usefixtures("spark")

CORRECTIONS = corrections_key(departures_by_origin)
REPORT = report_key("on_time_performance")
VIEW = departures_by_origin.name


def run(
    platform: dg.Definitions, instance: dg.DagsterInstance, job: str, config: dict[str, Any] | None = None
) -> dg.ExecuteInProcessResult:
    return platform.resolve_job_def(job).execute_in_process(run_config=config, instance=instance, raise_on_error=False)


def drain(platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake, *batches: Any) -> bool:
    land_all(lake, pipeline.stream, *batches)
    return run(platform, instance, "flights_drain", drain_config(pipeline)).success


def metadata(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(key)
    assert event is not None and event.asset_materialization is not None
    return {name: entry.value for name, entry in event.asset_materialization.metadata.items()}


def observed(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    (record,) = instance.fetch_observations(key, limit=1).records
    assert record.event_log_entry.asset_observation is not None
    return {name: entry.value for name, entry in record.event_log_entry.asset_observation.metadata.items()}


def current(instance: dg.DagsterInstance) -> tuple[int, int]:
    """How many results are current, and how many of them stand for a first one."""
    (key,) = current_keys(departures_by_origin)
    counts = metadata(instance, key)
    return counts["dagster/row_count"], counts["corrected_rows"]


def computed_from(metadata: dict[str, Any], column: str) -> set[tuple[str, str]]:
    """The columns that one of a report was computed from, each with the last part of its asset's key."""
    deps = metadata["dagster/column_lineage"].deps_by_column.get(column, [])
    return {(dep.asset_key.path[-1], dep.column_name) for dep in deps}


def described(metadata: dict[str, Any], column: str) -> str | None:
    (text,) = [one.description for one in metadata["dagster/column_schema"].columns if one.name == column]
    return str(text)


def checks(platform: dg.Definitions) -> set[dg.AssetCheckKey]:
    return set(platform.resolve_asset_graph().asset_check_keys)


def not_evaluated(platform: dg.Definitions, instance: dg.DagsterInstance) -> set[dg.AssetCheckKey]:
    return {check for check in checks(platform) if last_evaluation(instance, check) is None}


def described_columns_are_those_of_the_tables(platform: dg.Definitions, instance: dg.DagsterInstance) -> None:
    """What is declared of columns speaks of the columns that there are, in types that do not contradict theirs."""
    graph = platform.resolve_asset_graph()
    compared = 0
    for key in graph.get_all_asset_keys():
        event = instance.get_latest_materialization_event(key)
        declared = graph.get(key).metadata.get("dagster/column_schema")
        written = event and event.asset_materialization and event.asset_materialization.metadata
        if declared is None or not written or "dagster/column_schema" not in written:
            continue
        schema = written["dagster/column_schema"].value
        assert isinstance(schema, dg.TableSchema)
        types = {column.name: column.type for column in declared.columns}
        for column in schema.columns:
            schema_type = types.pop(column.name)
            assert schema_type in (column.type, UNKNOWN_TYPE) or column.type.startswith(schema_type), (key, column)
        assert types == {}, key
        compared += 1
    assert compared == 4


def failed_checks(result: dg.ExecuteInProcessResult) -> dict[str, str | None]:
    evaluations = result.get_asset_check_evaluations()
    assert all(evaluation.severity == dg.AssetCheckSeverity.ERROR for evaluation in evaluations)
    return {evaluation.check_name: evaluation.description for evaluation in evaluations if not evaluation.passed}


def reason(result: dg.ExecuteInProcessResult) -> str:
    failures = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    (description,) = (failure.description for failure in failures if failure is not None and failure.description)
    return str(description)


def test_drain_correct_publish_and_a_second_run_changes_nothing(
    platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    assert drain(platform, instance, lake, FIRST, SECOND, THIRD, CLOSING, LATE_ON_1, LATE_ON_3)
    log = metadata(instance, log_key(pipeline.stream))
    assert {"watermark", "delta_version", "dagster/row_count", "dagster/column_schema", "dagster/uri"} <= set(log)
    assert metadata(instance, table_key(departures_by_origin))["dagster/row_count"] == 10
    assert observed(instance, source_key(pipeline.stream))["backlog_files"] == 0
    assert current(instance) == (10, 0)
    # Also those that nothing has called for yet: no correction has been made, and the pipeline does not run on and on.
    assert not_evaluated(platform, instance) == {
        check for check in checks(platform) if check.asset_key.path[0] == "reports"
    }
    assert metadata(instance, late_key(departures_by_origin))["days_to_correct"] == 2

    blocked = run(platform, instance, "on_time_performance")
    assert not blocked.success
    assert reason(blocked).startswith("gate closed: 2013-01-01 has 1 late rows in departures_by_origin")
    assert delta.version_of(lake.report("on_time_performance")) is None

    corrected = run(platform, instance, "flights_corrections")
    assert corrected.success
    # Days 1 and 3 are no range: one run all the same, and nothing claimed of day 2.
    assert instance.get_materialized_partitions(CORRECTIONS) == {"2013-01-01", "2013-01-03"}
    assert len(corrected.get_asset_check_evaluations()) == 6
    assert observed(instance, late_key(departures_by_origin))["days_to_correct"] == 0
    assert current(instance) == (10, 2)
    # A partition counts its own rows, beside those of the whole table.
    day = metadata(instance, CORRECTIONS)
    assert (day["dagster/partition_row_count"], day["rows_of_table"], "dagster/row_count" in day) == (1, 2, False)

    published = run(platform, instance, "on_time_performance")
    assert published.success
    report = metadata(instance, REPORT)
    assert report["chart"].startswith("![on_time_performance](data:image/png;base64,")
    assert report["pinned_versions"]["departures_by_origin_corrections"] == 2
    assert computed_from(report, "origin") == {("departures_by_origin_current", "origin")}
    assert computed_from(report, "first_flights") == {("departures_by_origin", "flights")}
    assert computed_from(report, "late_rows") == {("departures_by_origin_corrections", "_late_rows")}
    # A mean over hours weighs them by the flights that left.
    assert computed_from(report, "current_mean_dep_delay") == {
        ("departures_by_origin_current", column) for column in ("mean_dep_delay", "flights", "cancelled")
    }
    assert described(report, "first_flights") == "From flights/departures_by_origin: flights."
    carriers = metadata(instance, report_key("on_time_performance_carriers"))
    assert computed_from(carriers, "name") == {("log", "carrier")}
    assert computed_from(carriers, "mean_dep_delay") == {("log", "dep_delay")}
    assert not_evaluated(platform, instance) == set()
    described_columns_are_those_of_the_tables(platform, instance)

    tables = [lake.log(pipeline.stream), lake.first(departures_by_origin), lake.corrections(departures_by_origin)]
    before = [delta.version_of(table) for table in tables]
    assert drain(platform, instance, lake)
    assert run(platform, instance, "flights_corrections").success
    assert [delta.version_of(table) for table in tables] == before


@pytest.mark.long
def test_the_days_asked_for_are_corrected_and_no_others_and_a_range_of_them_is_one_run(
    spark: SparkSession, platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    assert drain(platform, instance, lake, FIRST, SECOND, THIRD, CLOSING, LATE_ON_1, LATE_ON_3)
    assert run(platform, instance, "flights_corrections", corrections_config(pipeline, {VIEW: ["2013-01-03"]})).success
    assert instance.get_materialized_partitions(CORRECTIONS) == {"2013-01-03"}
    assert [str(entry.day) for entry in plan(spark, lake, departures_by_origin)] == ["2013-01-01"]

    wrong = run(platform, instance, "flights_corrections", corrections_config(pipeline, {VIEW: ["yesterday"]}))
    assert not wrong.success
    (failure,) = (event.step_failure_data for event in wrong.all_events if event.is_step_failure)
    assert "'yesterday' is no day; write days as ISO dates" in str(failure.error)

    result = platform.resolve_implicit_global_asset_job_def().execute_in_process(
        instance=instance,
        asset_selection=[CORRECTIONS],
        tags={"dagster/asset_partition_range_start": "2013-01-01", "dagster/asset_partition_range_end": "2013-01-03"},
    )
    events = result.get_asset_materialization_events()
    assert {event.partition for event in events if event.asset_key == CORRECTIONS} == {"2013-01-01", "2013-01-03"}
    assert plan(spark, lake, departures_by_origin) == []


@pytest.mark.long
def test_bad_data_fails_the_drain_and_closes_the_report(
    platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    land_all(lake, pipeline.stream, FIRST, BROKEN, CLOSING)
    drained = run(platform, instance, "flights_drain")
    assert not drained.success
    assert failed_checks(drained).keys() == {"rejected_share"}
    blocked = run(platform, instance, "on_time_performance")
    assert "expectation 'rejected_share' on flights/log version" in reason(blocked)
    assert delta.version_of(lake.report("on_time_performance")) is None


def test_a_check_that_cannot_run_is_an_error_and_says_so(
    platform: dg.Definitions, instance: dg.DagsterInstance, lake: Lake
) -> None:
    too_early = run(platform, instance, "on_time_performance")
    assert not too_early.success
    suites = suites_for(pipeline)
    failures = failed_checks(too_early)
    assert {expectation.name for suite in suites.values() for expectation in suite.expectations} <= failures.keys()
    assert str(failures["rejected_share"]).startswith("could not run: pipeline 'flights' has no table")
    assert delta.version_of(lake.report("on_time_performance")) is None

"""A delivery in Dagster: an asset of its target's kind, told of by whoever delivers."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.demo.pipelines.flights import departures_by_origin, flights, pipeline
from platform_assets.events.evaluations import last_evaluation
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.resources import default_resources
from streaming.declare.delivery import Delivery
from streaming.lake.lake import Lake
from streaming.sinks.files import JsonLines
from streaming.sinks.kafka import KafkaTopic
from streaming.sinks.postgres import Postgres
from streaming.sinks.rest import Rest
from tests.support.departures import FIRST, SECOND, THIRD
from tests.support.feeds import land_all
from tests.support.postgres import rows, run

LINES = Delivery("lines", flights, JsonLines("out"), select=("origin",), description="Departures for partners.")
AWAY = Delivery("away", flights, Rest("http://127.0.0.1:1/rows"), select=("origin",))
DEAD = Delivery("dead", LINES, KafkaTopic("broker:9092", "dead-lines"))
CURRENT = Delivery("table", departures_by_origin, Postgres("t", connection="host=db"), "current")


def platform_of(root: str, *deliveries: Delivery) -> dg.Definitions:
    return dg.Definitions.merge(
        pipeline_definitions(replace(pipeline, deliveries=deliveries)),
        dg.Definitions(resources=default_resources(root), executor=dg.in_process_executor),
    )


def test_each_delivery_is_an_asset_of_its_targets_kind_behind_the_tables_it_reads() -> None:
    graph = platform_of("/nowhere", LINES, AWAY, CURRENT, DEAD).resolve_asset_graph()
    lines, current = graph.get(dg.AssetKey(["flights", "lines"])), graph.get(dg.AssetKey(["flights", "table"]))
    assert (lines.kinds, current.kinds) == ({"json", "deliveries"}, {"postgres", "deliveries"})
    assert lines.description == "Departures for partners. Rows of flights, exactly once."
    assert lines.metadata["target"] == "out"
    assert {key.path[-1] for key in lines.parent_keys} == {"log"}
    assert {key.path[-1] for key in current.parent_keys} == {"departures_by_origin_current"}
    dead = graph.get(dg.AssetKey(["flights", "dead"]))
    assert (dead.kinds, dead.description) == ({"kafka", "deliveries"}, "Dead letters of lines, exactly once.")
    assert [key.path[-1] for key in dead.parent_keys] == ["lines"]


def test_each_delivery_has_checks_that_a_schedule_can_run_at_night() -> None:
    platform = platform_of("/nowhere", LINES, AWAY)
    checks = platform.resolve_asset_graph().asset_check_keys
    both = {"reconciled", "no_dead_letters"}
    of_deliveries = {(check.asset_key.path[-1], check.name) for check in checks if check.name in both}
    assert of_deliveries == {(delivery, name) for delivery in ("lines", "away") for name in both}
    schedule = platform.resolve_schedule_def("flights_reconciliation_nightly")
    assert schedule.default_status == dg.DefaultScheduleStatus.STOPPED
    assert platform.resolve_job_def("flights_reconciliation") is not None


@pytest.mark.long
def test_checks_tell_a_changed_row_dead_letters_and_that_the_target_is_away(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance, postgres: str
) -> None:
    """The table refuses one of three departures; then somebody changes another one, and takes the table away."""
    run(postgres, "create table departures (flight bigint, origin text check (origin <> 'EWR'))")
    table = Delivery("table", flights, Postgres("departures", connection=postgres), select=("flight", "origin"))
    platform = platform_of(lake.root, table)
    key = dg.AssetKey(["flights", "table"])
    land_all(lake, flights, FIRST)
    assert platform.resolve_job_def("flights_drain").execute_in_process(instance=instance).success
    refused = rows(postgres, "select count(*) from departures")[0][0]
    evaluation = last_evaluation(instance, dg.AssetCheckKey(key, "no_dead_letters"))
    assert evaluation is not None
    assert not evaluation.passed
    assert evaluation.metadata["dead_letters"].value == 3 - refused > 0

    def checked() -> dict[str, dg.AssetCheckEvaluation]:
        result = platform.resolve_job_def("flights_reconciliation").execute_in_process(instance=instance)
        assert result.success
        return {each.check_name: each for each in result.get_asset_check_evaluations()}

    before = checked()
    assert (before["reconciled"].passed, before["no_dead_letters"].passed) == (True, False)
    run(postgres, "update departures set flight = -1 where ctid = (select min(ctid) from departures)")
    after = checked()["reconciled"]
    assert not after.passed
    assert after.metadata["broken"].value == 1
    assert str(after.description).startswith("not as sent: 1 row of ")
    run(postgres, "alter table departures rename to gone")
    away = checked()["reconciled"]
    assert (away.passed, away.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert str(away.description).startswith("could not run: the target is away (")


@pytest.mark.long
def test_a_drain_tells_what_arrived_and_what_waits(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streaming.service.delivering._PATIENCE", 0.1)
    platform = platform_of(lake.root, LINES, AWAY)
    land_all(lake, flights, FIRST)
    job = platform.resolve_job_def("flights_drain")
    assert job.execute_in_process(instance=instance).success
    arrived = instance.get_latest_materialization_event(dg.AssetKey(["flights", "lines"]))
    assert arrived is not None and arrived.asset_materialization is not None
    metadata = {name: value.value for name, value in arrived.asset_materialization.metadata.items()}
    assert (metadata["delivered_rows"], metadata["dead_letters"], metadata["units_behind"]) == (3, 0, 0)
    assert instance.get_latest_materialization_event(dg.AssetKey(["flights", "away"])) is None
    observations = instance.fetch_observations(dg.AssetKey(["flights", "away"]), limit=1).records
    observed = observations[0].asset_observation
    assert observed is not None and "is away: ConnectError" in str(observed.metadata["waiting"].value)


@pytest.mark.long
def test_chosen_days_of_a_delivery_are_partitions_that_are_delivered_again_in_one_run(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody changes every row of the table; then two of its three days are materialized."""
    monkeypatch.setattr("streaming.service.delivering._PATIENCE", 0.1)
    select = {"day": "_day", "flight": "flight", "origin": "origin", "carrier": "carrier"}
    to = Postgres("departures", key=("day", "flight", "origin"), connection=postgres)
    platform = platform_of(lake.root, Delivery("table", flights, to, select=select), LINES)
    graph = platform.resolve_asset_graph()
    key, lines = dg.AssetKey(["flights", "table"]), graph.get(dg.AssetKey(["flights", "lines"]))
    assert graph.get(key).is_executable and not lines.is_executable
    assert "JsonLines keeps every row that it gets" in str(lines.metadata["not_by_day"])

    land_all(lake, flights, [*FIRST, *SECOND, *THIRD])
    assert platform.resolve_job_def("flights_drain").execute_in_process(instance=instance).success
    days = {"2013-01-01", "2013-01-02", "2013-01-03"}
    assert (
        instance.get_materialized_partitions(key) == set(instance.get_dynamic_partitions("flights__table_days")) == days
    )
    query = "select day::text, carrier from departures order by 1, 2"
    whole = rows(postgres, query)
    assert {day for day, _ in whole} == days
    run(postgres, "update departures set carrier = '??'")

    job = platform.resolve_implicit_global_asset_job_def()
    ends = {"dagster/asset_partition_range_start": "2013-01-01", "dagster/asset_partition_range_end": "2013-01-02"}
    done = job.execute_in_process(instance=instance, asset_selection=[key], tags=ends)
    partitions = {event.partition for event in done.get_asset_materialization_events() if event.asset_key == key}
    assert partitions == {"2013-01-01", "2013-01-02"}
    assert rows(postgres, query) == [(day, carrier if day < "2013-01-03" else "??") for day, carrier in whole]

    run(postgres, "alter table departures rename to gone", "create table departures (flight bigint)")
    failed = job.execute_in_process(instance=instance, asset_selection=[key], tags=ends, raise_on_error=False)
    (failure,) = (event.step_failure_data for event in failed.all_events if event.is_step_failure)
    assert failure.user_failure_data is not None
    assert "asked for, but not there yet" in str(failure.user_failure_data.description)

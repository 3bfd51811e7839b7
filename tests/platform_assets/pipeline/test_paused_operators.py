"""What Dagster makes of an operator that pauses: everything else is materialized, and the run tells why it failed."""

from __future__ import annotations

from dataclasses import replace

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.keys import failed_key
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.jobs import corrections_config
from platform_assets.resources import default_resources
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Selected, Stream, Tumbling, Windowed, agg
from tests.support.feeds import land_all
from tests.support.instants import at

DAY = 86_400
parts = Stream(
    name="parts",
    source=Files("landing/parts"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)
strict = Selected("strict", parts, {"share": "60 div (value - 7)"})
shares = Windowed("shares", parts, Tumbling("10 seconds"), {"share": agg.sum("60 div value")}, by=("id",))
pipeline = Pipeline(parts, (strict, shares))


def readings(*rows: tuple[int, int]) -> list[dict[str, object]]:
    return [{"id": "a", "at": at(second).isoformat(), "value": value} for second, value in rows]


@pytest.mark.long
def test_a_drain_and_a_backfill_bring_on_all_that_they_can_and_name_what_they_cannot(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    platform = dg.Definitions.merge(
        pipeline_definitions(pipeline),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )

    def run(job: str, config: dict[str, object] | None = None) -> str:
        """Why the run failed."""
        done = platform.resolve_job_def(job).execute_in_process(
            instance=instance, run_config=config, raise_on_error=False
        )
        (failed,) = [event for event in done.all_events if event.is_step_failure]
        assert not done.success
        return str(failed.step_failure_data.error_display_string)

    def materialized(table: str) -> set[str | None]:
        """The partitions that are, None for a table without."""
        records = instance.fetch_materializations(dg.AssetKey(["parts", table]), limit=10).records
        return {record.partition_key for record in records}

    land_all(lake, parts, readings(*((day * DAY, 1) for day in range(4))))
    land_all(lake, parts, readings((1, 7), (DAY + 1, 0), (2 * DAY + 1, 3)))
    reason = run("parts_drain")
    assert "strict: An expression of selection 'strict' cannot be computed" in reason
    assert "value=7" in reason and "shares:" not in reason
    assert materialized("log") and materialized("shares") and not materialized("strict")

    days = [at(day * DAY).date().isoformat() for day in range(3)]
    reason = run("parts_corrections", corrections_config(pipeline, {"shares": []}))
    assert f"1 day of view 'shares' cannot be corrected, 2 others are: {days[1]}: [DIVIDE_BY_ZERO]" in reason
    assert materialized("shares_corrections") == {days[0], days[2]}


@pytest.mark.long
def test_rows_that_a_view_leaves_out_are_an_asset_with_their_number_and_errors(
    spark: SparkSession, lake: Lake, instance: dg.DagsterInstance
) -> None:
    diverting = replace(shares, on_error="side")
    platform = dg.Definitions.merge(
        pipeline_definitions(Pipeline(parts, (diverting,))),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    land_all(lake, parts, readings((1, 7), (2, 0), (20, 1)))
    assert platform.resolve_job_def("parts_drain").execute_in_process(instance=instance).success
    (record,) = instance.fetch_materializations(failed_key(diverting), limit=2).records
    assert record.asset_materialization is not None
    metadata = record.asset_materialization.metadata
    assert metadata["dagster/row_count"].value == 1
    assert "aggregate 'share' cannot be computed: sum(60 div value) | 1" in str(metadata["errors"].value)

"""What Dagster makes of a keyed function whose late rows are corrected: by day, and counted as other late rows are."""

from __future__ import annotations

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from platform_assets.events.backlog import may_need_corrections, waiting
from platform_assets.partitions import days_of
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.reports.sources import Sources
from platform_assets.resources import default_resources
from quality import pin
from streaming.declare.pipeline import Pipeline
from streaming.lake.lake import Lake
from tests.streaming.keyed.corrections_oracle import told
from tests.streaming.keyed.functions import payloads
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.runs import tuples

PIPELINE = Pipeline(told.streams[0], (told,))


@pytest.mark.long
def test_activity_sessions_are_corrected_by_day_and_reports_read_what_is_current(
    spark: SparkSession, lake: Lake
) -> None:
    definitions = dg.Definitions.merge(
        pipeline_definitions(PIPELINE, []),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    log, first, side, corrections, current, late = (
        dg.AssetKey(["readings", name])
        for name in ("log", "told", "told_side", "told_corrections", "told_current", "told_late")
    )
    assert graph.get(late).parent_keys == {log}
    assert graph.get(corrections).parent_keys == {log, late}
    assert graph.get(corrections).partitions_def == days_of(told)
    assert graph.get(current).parent_keys == {first, side, corrections}

    land_all(lake, told.streams[0], payloads("a@1=3, a@20=3"), payloads("a@2=4, a@30=3"))
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: str) -> dg.ExecuteInProcessResult:
            return definitions.resolve_job_def(job).execute_in_process(instance=instance)

        assert run("readings_drain").success
        event = instance.get_latest_materialization_event(late)
        assert event is not None and event.asset_materialization is not None
        assert event.asset_materialization.metadata["dagster/row_count"].value == 1
        assert may_need_corrections(instance, lake, told)
        assert run("readings_corrections").success
        (corrected,) = instance.fetch_materializations(corrections, limit=2).records
        assert corrected.partition_key == at(0).date().isoformat()
        assert waiting(instance, lake, told) is None
    sources = Sources(spark, lake, PIPELINE, pin(lake, PIPELINE))
    rows = tuples(sources.current(told), "_at", "said", "_corrected")
    assert rows == [(at(1), "3", False), (at(2), "34", True), (at(20), "3", False)]

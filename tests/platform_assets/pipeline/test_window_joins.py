"""What Dagster makes of a window join: behind both logs, and corrected by day."""

from __future__ import annotations

from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from platform_assets.events.backlog import may_need_corrections, waiting
from platform_assets.partitions import days_of
from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.pipeline.schedules import next_corrections
from platform_assets.resources import default_resources
from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, WindowJoined
from streaming.lake.lake import Lake
from streaming.operators.runtime import runtime_of
from tests.support.feeds import land_all
from tests.support.instants import at
from tests.support.runs import tuples

ours, theirs = (
    Stream(
        name,
        Files(f"landing/{name}", files_per_batch=1),
        Json("k string, at timestamp not null, v string"),
        "at",
        BoundedOutOfOrderness("1 second", max_ahead="3650 days"),
    )
    for name in ("ours", "theirs")
)
joined = WindowJoined("joined", ours, theirs, ("k",), Tumbling("5 seconds"), {"a": "left_v", "b": "right_v"})
meeting = Pipeline(name="meeting", streams=(ours, theirs), operators=(joined,))


def row(seconds: float, value: str) -> dict[str, Any]:
    return {"k": "k", "at": at(seconds).isoformat(), "v": value}


def test_it_is_behind_both_logs_and_a_run_corrects_the_days_of_rows_that_are_late_on_either_side(
    spark: SparkSession, lake: Lake
) -> None:
    definitions = dg.Definitions.merge(
        pipeline_definitions(meeting),
        dg.Definitions(resources=default_resources(lake.root), executor=dg.in_process_executor),
    )
    graph = definitions.resolve_asset_graph()
    first, corrections, current = (
        dg.AssetKey(["ours", f"joined{suffix}"]) for suffix in ("", "_corrections", "_current")
    )
    logs = {dg.AssetKey(["ours", "log"]), dg.AssetKey(["theirs", "log"])}
    assert graph.get(first).parent_keys == graph.get(corrections).parent_keys == logs
    assert graph.get(corrections).partitions_def == days_of(joined)
    assert graph.get(current).parent_keys == {first, corrections}

    land_all(lake, ours, [row(1, "a1")], [row(30, "a30")], [row(2, "a2")])
    land_all(lake, theirs, [row(3, "b3")], [row(40, "b40")])
    with dg.DagsterInstance.ephemeral() as instance:

        def run(job: str) -> dg.ExecuteInProcessResult:
            return definitions.resolve_job_def(job).execute_in_process(instance=instance)

        assert not may_need_corrections(instance, lake, joined)
        assert run("meeting_drain").success
        assert isinstance(next_corrections(instance, lake, meeting), dg.RunRequest)
        assert waiting(instance, lake, joined) is not None
        assert run("meeting_corrections").success
        assert instance.get_dynamic_partitions(days_of(joined).name or "") == [at(0).date().isoformat()]
        (told,) = instance.fetch_materializations(corrections, limit=2).records
        assert told.partition_key == at(0).date().isoformat()
        assert waiting(instance, lake, joined) is None
        assert not may_need_corrections(instance, lake, joined)
    pairs = runtime_of(joined, lake).readable["current"](spark)
    assert tuples(pairs, "a", "b", "_corrected") == [("a1", "b3", True), ("a2", "b3", True)]

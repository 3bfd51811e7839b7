"""The sources of a pipeline, as assets that can be observed, and a sensor that drains what lands."""

# Not with postponed annotations: dagster reads those of assets and sensors when they are declared.
from collections.abc import Iterator
from typing import TYPE_CHECKING

import dagster as dg

from platform_assets import keys
from platform_assets.events.sources import count_waiting, source_metadata
from platform_assets.pipeline.runs import in_progress
from platform_assets.resources import LakeResource
from platform_assets.specs import asset_spec
from streaming import Lake, Pipeline
from streaming.declare import ColumnSpec
from streaming.log import head
from streaming.service import look

if TYPE_CHECKING:
    from platform_assets.pipeline.jobs import AssetJob


def source_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    """The source of each stream; what waits is counted when it is observed, by each drain, and by a running stream."""
    specs = [
        asset_spec(
            pipeline,
            keys.source_key(stream),
            "source",
            f"What lands for stream {stream.name}. Observe it to count what waits to be taken in.",
            # Dagster shows three kinds at most; of sources that follow one another it is the last that stays.
            {type(stream.source.parts[-1]).__name__.lower(), type(stream.format).__name__.lower()},
            deps=keys.followed_keys(stream),
            columns=[ColumnSpec(one.name, one.comment, one.type) for one in stream.format.columns],
        )
        for stream in pipeline.streams
    ]

    @dg.multi_observable_source_asset(name=keys.dagster_name("observe", pipeline.name), specs=specs, can_subset=True)
    def observe(context: dg.AssetExecutionContext, lake: LakeResource) -> Iterator[dg.ObserveResult]:
        for stream in pipeline.streams:
            if keys.source_key(stream) in context.selected_asset_keys:
                waiting = count_waiting(lake.lake, stream)
                yield dg.ObserveResult(
                    asset_key=keys.source_key(stream), metadata=source_metadata(lake.lake, stream, waiting)
                )

    return observe


def arrivals_sensor(pipeline: Pipeline, job: "AssetJob") -> dg.SensorDefinition:
    """Drains the pipeline where something waits, once for each backlog; starts no Spark.

    Off until somebody turns it on: a pipeline may as well run on and on, or be drained by hand or by a schedule.
    """

    @dg.sensor(
        name=keys.dagster_name("arrivals", pipeline.name),
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Drains {pipeline.name} when something has landed that no batch has taken yet.",
    )
    def ask(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SensorResult | dg.SkipReason:
        return next_drain(context.instance, lake.lake, pipeline)

    return ask


def next_drain(instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline) -> dg.SensorResult | dg.SkipReason:
    """The decision of one tick; a backlog that a drain could not take is asked for again once there is more of it."""
    holder = look(lake, pipeline).holder
    if holder is not None:
        return dg.SkipReason(f"{pipeline.name} is held by {holder}")
    if in_progress(instance, pipeline):
        return dg.SkipReason(f"a run of {pipeline.name} is in progress")
    counted = {stream: count_waiting(lake, stream) for stream in pipeline.streams}
    if not any(waiting.items for waiting in counted.values()):
        return dg.SkipReason(f"nothing waits for {pipeline.name}")
    parts = []
    for stream, waiting in counted.items():
        newest = head(lake, stream)
        after = "begin" if newest is None else newest.number
        parts.append(f"{stream.name}:{after}+{waiting.items} of {waiting.size} bytes")
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=" ".join(parts))],
        asset_events=[
            dg.AssetObservation(keys.source_key(stream), metadata=source_metadata(lake, stream, waiting))
            for stream, waiting in counted.items()
        ],
    )

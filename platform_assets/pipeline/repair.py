"""The repair of a pipeline as a job: a preview unless it is told to write."""

from collections.abc import Iterator, Sequence

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from platform_assets import keys
from platform_assets.events.counts import count_late, count_rejected
from platform_assets.events.metadata import table_metadata, watermark_metadata
from platform_assets.lineage import lineage_of_log
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.tags import PIPELINE_TAG
from platform_assets.texts.repair import as_markdown
from streaming import Lake, Pipeline, Stream
from streaming.base import utc_now
from streaming.operations import preview, repair


class RepairConfig(dg.Config):
    """The configuration of a repair, which may only tell what it would do."""

    preview: bool = Field(
        default=True, description="Tell how many rows would pass and which windows would change; write nothing."
    )


def repair_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("repair_step", pipeline.name)


def materialized_log(lake: Lake, stream: Stream) -> dg.AssetMaterialization:
    """The log of a stream, to which an operation has appended a batch."""
    of_log = {**table_metadata(lake.log(stream), lineage_of_log(stream)), **watermark_metadata(lake, stream)}
    return dg.AssetMaterialization(keys.log_key(stream), metadata=of_log)


def observed_late(
    instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, pipeline: Pipeline, changed: Sequence[Stream]
) -> Iterator[dg.AssetObservation]:
    """The late rows of the operators that read `changed` streams: the sensor of late data goes by these counts."""
    for operator in pipeline.operators:
        if operator.tells_late and any(stream in changed for stream in operator.reads):
            yield dg.AssetObservation(keys.late_key(operator), metadata=count_late(instance, spark, lake, operator))


def repair_job(pipeline: Pipeline) -> dg.JobDefinition:
    """Judge the rejected rows of a pipeline anew; the run tells the outcome as metadata of its one step."""

    @dg.op(name=repair_step(pipeline), out=dg.Out(dg.Nothing))
    def run(context: dg.OpExecutionContext, config: RepairConfig, lake: LakeResource, spark: SparkResource) -> None:
        where, session = lake.lake, spark.spark_session
        if config.preview:
            outcome = preview(session, where, pipeline, utc_now)
            context.add_output_metadata(
                {
                    "examined": outcome.examined,
                    "would_pass": outcome.repaired,
                    "preview": dg.MetadataValue.md(as_markdown(outcome)),
                }
            )
            return
        repaired = repair(session, where, pipeline, utc_now)
        context.add_output_metadata({"examined": repaired.examined, "repaired": repaired.repaired})
        context.log.info(f"{repaired.repaired} of {repaired.examined} rejected rows are repaired")
        changed = [stream for stream in pipeline.streams if stream.name in repaired.batches]
        for stream in (each.revisions for each in changed):
            context.log_event(materialized_log(where, stream))
            left = count_rejected(session, where, stream)
            context.log_event(dg.AssetObservation(keys.rejected_key(stream), metadata=left))
        for event in observed_late(context.instance, session, where, pipeline, changed):
            context.log_event(event)

    @dg.job(
        name=keys.dagster_name("repair", pipeline.name),
        description=(
            f"Judge the rejected rows of {pipeline.name} anew, after rules, schema or format changed. By default only "
            "a preview; with `preview: false` those that are valid now come back, each exactly once."
        ),
        tags={PIPELINE_TAG: pipeline.name},
        executor_def=dg.in_process_executor,
    )
    def repairing() -> None:
        run()

    return repairing

"""The retraction of rows of a pipeline as a job: a preview unless it is told to write."""

import dagster as dg
from pydantic import Field

from platform_assets import keys
from platform_assets.pipeline.repair import materialized_log, observed_late
from platform_assets.reports.registry import reports_reached
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.tags import PIPELINE_TAG
from platform_assets.texts.retraction import as_markdown
from streaming import Pipeline
from streaming.base import utc_now
from streaming.operations import RowChoice, find_retractable, preview_retraction, retract


class RetractionConfig(dg.Config):
    """The configuration of a retraction, which may only tell what it would do."""

    stream: str | None = Field(default=None, description="The stream; the only one of the pipeline if left out.")
    where: str | None = Field(default=None, description="Which rows: a SQL condition over the stream's columns.")
    undo: int | None = Field(default=None, description="The id of a retraction that is to be taken back instead.")
    reason: str = Field(default="", description="Why; it stays in the log. Needed where something is written.")
    who: str = Field(default="dagster", description="By whom.")
    preview: bool = Field(
        default=True, description="Tell which rows, and what of each operator, would change; write nothing."
    )


def retraction_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("retraction_step", pipeline.name)


def retraction_job(pipeline: Pipeline) -> dg.JobDefinition:
    """Take back rows of a pipeline, or put them back; the run tells the outcome as metadata of its one step."""

    @dg.op(name=retraction_step(pipeline), out=dg.Out(dg.Nothing))
    def run(context: dg.OpExecutionContext, config: RetractionConfig, lake: LakeResource, spark: SparkResource) -> None:
        where, session = lake.lake, spark.spark_session
        stream, chosen = find_retractable(pipeline, config.stream), RowChoice(config.where, config.undo)
        if config.preview:
            outcome = preview_retraction(session, where, pipeline, stream, chosen)
            text = as_markdown(outcome, reports_reached(pipeline, outcome))
            context.add_output_metadata({"rows": outcome.rows, "preview": dg.MetadataValue.md(text)})
            return
        done = retract(session, where, pipeline, stream, chosen, config.reason, config.who, utc_now)
        context.add_output_metadata({"rows": 0 if done is None else done.rows})
        if done is None:
            context.log.info(f"no row of {stream.name} that counts is meant")
            return
        context.add_output_metadata({"retraction": done.id})
        context.log.info(f"{done.rows} rows of {stream.name}: retraction {done.id}")
        for log in dict.fromkeys((stream.revisions, stream)):
            context.log_event(materialized_log(where, log))
        for event in observed_late(context.instance, session, where, pipeline, [stream]):
            context.log_event(event)

    @dg.job(
        name=keys.dagster_name("retraction", pipeline.name),
        description=(
            f"Take back valid rows of {pipeline.name} that are wrong, or put them back. By default only a preview; "
            "with `preview: false` and a reason the rows are taken back, and what is published of them waits for a "
            "correction."
        ),
        tags={PIPELINE_TAG: pipeline.name},
        executor_def=dg.in_process_executor,
    )
    def retracting() -> None:
        run()

    return retracting

"""Schedules: jobs that run by the clock on the wall."""

# Not with postponed annotations: dagster reads those of schedules when they are declared.
import dagster as dg

from platform_assets.events.backlog import may_need_corrections
from platform_assets.keys import dagster_name
from platform_assets.pipeline.runs import in_progress
from platform_assets.resources import LakeResource
from streaming import Lake, Pipeline
from streaming.operations import needs_maintenance


def corrections_schedule(pipeline: Pipeline, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Hourly, what the sensor cannot know of: late pairs that nobody has counted, sessions that ended, failed runs."""

    @dg.schedule(
        name=dagster_name("corrections_hourly", pipeline.name),
        job=job,
        cron_schedule="0 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Corrects the days of {pipeline.name} whose late pairs are newer than their correction.",
    )
    def plan_if_due(context: dg.ScheduleEvaluationContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        return next_corrections(context.instance, lake.lake, pipeline)

    return plan_if_due


def next_corrections(instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline) -> dg.RunRequest | dg.SkipReason:
    """The decision of the hour: a run that plans the days, unless it is certain that it would find none."""
    if in_progress(instance, pipeline):
        return dg.SkipReason(f"a run of {pipeline.name} is in progress")
    if not any(may_need_corrections(instance, lake, operator) for operator in pipeline.backfilled):
        return dg.SkipReason(f"every late pair of {pipeline.name} is corrected")
    return dg.RunRequest()


def maintenance_schedule(pipeline: Pipeline, job: dg.JobDefinition) -> dg.ScheduleDefinition:
    """Hourly: a stream writes a few files a second, and readers pay for each."""

    @dg.schedule(
        name=dagster_name("maintenance_hourly", pipeline.name),
        job=job,
        cron_schedule="30 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Keeps the tables of {pipeline.name} quick to read.",
    )
    def tidy_if_written(context: dg.ScheduleEvaluationContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        if not needs_maintenance(lake.lake, pipeline):
            return dg.SkipReason(f"nothing was written to the tables of {pipeline.name} since they were maintained")
        return dg.RunRequest()

    return tidy_if_written

"""Sensors, which act because something else happened: late data ask for corrections, new results for the report."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from platform_assets.events.backlog import Waiting, waiting
from platform_assets.events.stream_events import REPORTED_EVERY, StreamEvents
from platform_assets.keys import dagster_name, log_key
from platform_assets.pipeline.checks import report_verdicts
from platform_assets.pipeline.commits import untold_tables
from platform_assets.pipeline.jobs import corrections_config
from platform_assets.pipeline.reports import reported_pins
from platform_assets.pipeline.runs import in_progress
from platform_assets.reports.publish import is_up_to_date
from platform_assets.reports.report import Report
from platform_assets.resources import LakeResource
from platform_assets.tags import PROCESS_TAG
from streaming import Lake, Pipeline
from streaming.base import NotBuiltYet, utc_now
from streaming.service import look
from streaming.tables import delta

if TYPE_CHECKING:
    from platform_assets.pipeline.jobs import AssetJob


TICK = timedelta(seconds=30)


def backlog_sensor(pipeline: Pipeline, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Asks for exactly the days with uncorrected late pairs, once for each backlog; starts no Spark.

    Where late pairs came without Dagster's knowledge, it asks the run to plan the days.
    """

    @dg.sensor(
        name=dagster_name("late_data", pipeline.name),
        job=job,
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Corrects the days of {pipeline.name} whose late pairs are newer than their correction.",
    )
    def ask(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        if in_progress(context.instance, pipeline):
            return dg.SkipReason(f"a run of {pipeline.name} is in progress")
        backlogs: dict[str, Waiting] = {}
        for operator in pipeline.backfilled:
            backlog = waiting(context.instance, lake.lake, operator)
            if backlog is not None:
                backlogs[operator.name] = backlog
        if not backlogs:
            return dg.SkipReason(f"every late pair of {pipeline.name} is corrected")
        return dg.RunRequest(
            run_key=" ".join(f"{view}:{backlog.identity}" for view, backlog in backlogs.items()),
            run_config=corrections_config(
                pipeline, {view: [day.isoformat() for day in backlog.days] for view, backlog in backlogs.items()}
            ),
        )

    return ask


def commits_sensor(pipeline: Pipeline, reports: Sequence[Report]) -> dg.SensorDefinition:
    """Tells the instance of what commands, streams and other machines have written, from the commits of the tables."""

    @dg.sensor(
        name=dagster_name("commits", pipeline.name),
        minimum_interval_seconds=TICK.seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Shows what was written of {pipeline.name} without a run of Dagster.",
    )
    def tell(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.SkipReason:
        told = next_told(context.instance, lake.lake, pipeline, reports, utc_now())
        if isinstance(told, dg.SkipReason):
            return told
        verdicts = delta.version_of(lake.lake.verdicts())
        if str(verdicts) != context.cursor:
            report_verdicts(context.instance, lake.lake, pipeline)
            context.update_cursor(str(verdicts))
        names = ", ".join(sorted({key.to_user_string() for key in told}))
        return dg.SkipReason(f"told of {names}" if told else f"everything written of {pipeline.name} is told already")

    return tell


def next_told(
    instance: dg.DagsterInstance, lake: Lake, pipeline: Pipeline, reports: Sequence[Report], now: datetime
) -> Sequence[dg.AssetKey] | dg.SkipReason:
    """The keys that one tick tells of: all tables of a running stream, every few minutes, else those with new rows."""
    if in_progress(instance, pipeline):
        return dg.SkipReason(f"a run of {pipeline.name} is in progress, and tells of its tables itself")
    overview = look(lake, pipeline)
    if overview.running:
        last = instance.get_latest_materialization_event(log_key(pipeline.stream))
        # A stream that is a run of Dagster tells a little earlier.
        if last is not None and now.timestamp() - last.timestamp < (REPORTED_EVERY + TICK).total_seconds():
            return dg.SkipReason(f"{pipeline.name} runs, and is told of every {REPORTED_EVERY.seconds // 60} minutes")
        StreamEvents(instance, lake, pipeline).report(overview, now)
    elif overview.holder is not None:
        return dg.SkipReason(f"{pipeline.name} is held by {overview.holder}")
    return untold_tables(instance, lake, pipeline, reports)


def report_sensor(
    report: Report,
    report_job: "AssetJob",
    after: Sequence["AssetJob | dg.JobDefinition"],
) -> dg.SensorDefinition:
    """The report follows a successful run of the jobs `after`, unless late pairs still wait: then it follows those."""

    @dg.run_status_sensor(
        name=dagster_name("follows", report.name),
        run_status=dg.DagsterRunStatus.SUCCESS,
        monitored_jobs=list(after),
        request_job=report_job,
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Publishes {report.name} once {report.pipeline.name} is drained and corrected.",
    )
    def follow(context: dg.RunStatusSensorContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        if PROCESS_TAG in context.dagster_run.tags:
            return dg.SkipReason("the process that executed this run sees to the report itself")
        read = [each for each in report.pipeline.backfilled if each in report.operators]
        # A stream that runs always has some that wait: its report is of the batches before them.
        running = look(lake.lake, report.pipeline).running
        if not running and any(waiting(context.instance, lake.lake, each) for each in read):
            return dg.SkipReason(f"late pairs of {report.pipeline.name} are not corrected yet; the report follows that")
        if _is_published(context.instance, lake.lake, report):
            return dg.SkipReason(
                f"{report.name} is published from exactly these versions, or newer ones; launch its job to repeat it"
            )
        return dg.RunRequest(run_key=context.dagster_run.run_id)

    return follow


def _is_published(instance: dg.DagsterInstance, lake: Lake, report: Report) -> bool:
    try:
        pins = reported_pins(instance, lake, report)
    except NotBuiltYet:
        # The run says what is missing.
        return False
    return is_up_to_date(lake, report, pins)

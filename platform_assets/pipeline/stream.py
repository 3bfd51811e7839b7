"""A stream as a Dagster run: the same supervisor as `tidemark up`, started, drained and ended from the UI."""

# Not with postponed annotations: dagster reads those of ops when they are declared.
from datetime import UTC, datetime, timedelta
from typing import Literal
from uuid import uuid4

import dagster as dg
from pydantic import Field

from platform_assets.events.stream_events import StreamEvents
from platform_assets.keys import dagster_name
from platform_assets.resources import LakeResource
from platform_assets.tags import STREAM_TAG
from streaming import Pipeline
from streaming.base import utc_now
from streaming.service import Supervisor, look, request

_SUPERVISES_WITHIN = timedelta(minutes=1)
"""A run that has begun takes the lease of its pipeline by then."""


def stream_job(pipeline: Pipeline) -> dg.JobDefinition:
    """The run that lasts as long as the stream does.

    An op and no asset: "materialize all" must not wait for something that does not end. Its tables are told of as they
    grow, by events of their own.
    """

    # Without a retry policy, which would start the stream again after Terminate; its own strategy restarts it.
    @dg.op(name=dagster_name("supervise", pipeline.name))
    def supervise(context: dg.OpExecutionContext, lake: LakeResource) -> None:
        events = StreamEvents(context.instance, lake.lake, pipeline)
        supervisor = Supervisor(lake.lake, pipeline, on_state=events.on_state)
        ended = supervisor.run(each=lambda: events.look(utc_now()))
        if ended.state == "failed":
            last = ended.failures[-1]
            raise dg.Failure(
                description=last.error,
                metadata={"batch": last.batch or "unknown", "origins": last.origins or "unknown"},
                allow_retries=False,
            )

    @dg.job(
        name=stream_job_name(pipeline),
        description=(
            f"Run {pipeline.name} on and on, under its supervisor. Terminate ends it at the boundary of a batch; "
            f"{dagster_name('control', pipeline.name)} drains, pauses and restarts it."
        ),
        # The keeper alone starts it again: a retry beside it would be a second run, waiting for the first to end.
        tags={STREAM_TAG: pipeline.name, "dagster/max_retries": "0"},
        executor_def=dg.in_process_executor,
    )
    def stream() -> None:
        supervise()

    return stream


def stream_job_name(pipeline: Pipeline) -> str:
    """The name of the job that runs the pipeline on and on."""
    return dagster_name("stream", pipeline.name)


class ControlConfig(dg.Config):
    """The configuration of a request to a running stream."""

    action: Literal["drain", "stop", "pause", "resume", "restart"] = Field(
        default="drain", description="drain publishes all that was taken in and ends; stop ends at once."
    )


def control_job(pipeline: Pipeline) -> dg.JobDefinition:
    """Asks the supervisor of the pipeline, whoever started it."""

    @dg.op(name=dagster_name("ask", pipeline.name))
    def ask(context: dg.OpExecutionContext, config: ControlConfig, lake: LakeResource) -> None:
        request(lake.lake, pipeline, config.action, uuid4().hex, utc_now())
        context.log.info(f"asked {pipeline.name} to {config.action}")

    @dg.job(
        name=dagster_name("control", pipeline.name),
        description=f"Ask the running stream of {pipeline.name} to drain, stop, pause, resume or restart.",
        executor_def=dg.in_process_executor,
    )
    def control() -> None:
        ask()

    return control


def keeper_sensor(pipeline: Pipeline, job: dg.JobDefinition) -> dg.SensorDefinition:
    """Starts the run again when it died with its worker; not when somebody ended it, and not when it has failed.

    What somebody ended is also a stream that `tidemark up` ran after the last run.
    """

    @dg.sensor(
        name=dagster_name("keeper", pipeline.name),
        job=job,
        minimum_interval_seconds=15,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Keeps the stream of {pipeline.name} running once it was started here.",
    )
    def keep(context: dg.SensorEvaluationContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        runs = context.instance.get_runs(dg.RunsFilter(job_name=job.name), limit=1)
        return next_run(context.instance, lake, pipeline, runs[0] if runs else None, utc_now())

    return keep


def next_run(
    instance: dg.DagsterInstance, lake: LakeResource, pipeline: Pipeline, last: dg.DagsterRun | None, now: datetime
) -> dg.RunRequest | dg.SkipReason:
    """The keeper's decision, after the `last` run of the stream's job."""
    overview = look(lake.lake, pipeline)
    if last is None:
        return dg.SkipReason(f"{pipeline.name} was never started here; launch {stream_job_name(pipeline)}")
    if overview.holder is not None:
        return dg.SkipReason(f"held by {overview.holder}")
    if last.status == dg.DagsterRunStatus.CANCELED:
        return dg.SkipReason("the last run was terminated; launch the job to start the stream again")
    if last.status == dg.DagsterRunStatus.SUCCESS:
        return dg.SkipReason("the stream was ended as asked; launch the job to start it again")
    begun = _begun(instance, last)
    if not last.is_finished and (last.status != dg.DagsterRunStatus.STARTED or now - begun < _SUPERVISES_WITHIN):
        return dg.SkipReason(f"run {last.run_id} is {last.status.value}")
    if overview.state == "failed":
        return dg.SkipReason(f"the stream has failed: {overview.why}; correct the cause and launch the job")
    # Whoever ended it need not have done so through Dagster.
    if not overview.why and overview.since is not None and overview.since >= begun:
        return dg.SkipReason("the stream was ended as asked; launch the job to start it again")
    if not last.is_finished:
        # Worker and code server died together, and nobody was left to say so.
        instance.report_run_failed(last, "the process that supervised the stream is gone")
    return dg.RunRequest(run_key=f"after-{last.run_id}", tags={STREAM_TAG: pipeline.name})


def _begun(instance: dg.DagsterInstance, run: dg.DagsterRun) -> datetime:
    record = instance.get_run_record_by_id(run.run_id)
    assert record is not None
    return datetime.fromtimestamp(record.start_time or record.create_timestamp.timestamp(), UTC)

"""Savepoints of a pipeline as jobs: take or drop one, go back to it, make a second pipeline of it.

What savepoints there are, how old, and what each keeps is told with every run; pause and resume are in the control job.
"""

# Not with postponed annotations: dagster reads those of ops when they are declared.
from collections.abc import Callable
from datetime import datetime
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from platform_assets.keys import Kind, dagster_name, log_key
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.tags import PIPELINE_TAG
from streaming import Lake, Pipeline, Settings, drop_savepoint, fork, restore, restore_to, savepoint, savepoints
from streaming.base import utc_now
from streaming.operations import Restored, Savepoint, kept_bytes

Verb = Literal["savepoint", "restore", "fork"]

_STEPS: dict[Verb, Kind] = {"savepoint": "savepoint_step", "restore": "restore_step", "fork": "fork_step"}
_COLUMNS = {
    "name": "string",
    "age_seconds": "int",
    "batches": "string",
    "bytes": "int",
    "bytes_kept_for_it": "int",
    "pins": "string",
}
_SCHEMA = dg.TableSchema([dg.TableColumn(name, kind) for name, kind in _COLUMNS.items()])


class SavepointConfig(dg.Config):
    """Which savepoint is taken, or dropped."""

    name: str = Field(default="", description="What it is called; the instant, if left empty.")
    drop: bool = Field(default=False, description="Remove the savepoint of that name instead.")


class RestoreConfig(dg.Config):
    """Which savepoint a pipeline goes back to."""

    name: str = Field(description="A savepoint of the pipeline.")
    to: str = Field(default="", description="Folder or URI of a new lake; empty to restore in place.")


class ForkConfig(dg.Config):
    """From where a second pipeline goes on, and in which lake."""

    name: str = Field(default="", description="The savepoint it begins at; as everything is now, if left empty.")
    to: str = Field(description="Folder or URI of the new lake.")


def savepoint_jobs(pipeline: Pipeline) -> list[dg.JobDefinition]:
    """The jobs `<pipeline>_savepoint`, `<pipeline>_restore` and `<pipeline>_fork`, each of one step."""

    @dg.op(name=savepoint_step(pipeline, "savepoint"), out=dg.Out(dg.Nothing))
    def take(context: dg.OpExecutionContext, config: SavepointConfig, lake: LakeResource) -> None:
        if config.drop:
            done = drop_savepoint(lake.lake, pipeline, config.name)
            context.log.info(f"savepoint {done.name} of {pipeline.name} is dropped")
        else:
            done = savepoint(lake.lake, pipeline, config.name or None)
            context.log.info(f"savepoint {done.name} of {pipeline.name} is taken")
        context.add_output_metadata({"savepoint": done.name, "dropped": config.drop, **_told(lake.lake, pipeline)})
        context.log_event(dg.AssetObservation(log_key(pipeline.stream), metadata=_told(lake.lake, pipeline)))

    @dg.op(name=savepoint_step(pipeline, "restore"), out=dg.Out(dg.Nothing))
    def back(context: dg.OpExecutionContext, config: RestoreConfig, lake: LakeResource, spark: SparkResource) -> None:
        if config.to:
            restored = restore_to(lake.lake, pipeline, config.name, Settings(home=config.to).lake)
        else:
            restored = restore(spark.spark_session, lake.lake, pipeline, config.name)
        context.add_output_metadata(_restored(restored, config.to or lake.lake.root))

    @dg.op(name=savepoint_step(pipeline, "fork"), out=dg.Out(dg.Nothing))
    def make_second(context: dg.OpExecutionContext, config: ForkConfig, lake: LakeResource) -> None:
        forked = fork(lake.lake, pipeline, config.name or None, Settings(home=config.to).lake)
        context.add_output_metadata(_restored(forked, config.to))

    return [
        _job(pipeline, "savepoint", take, "Save a consistent cut of all tables under a name, or drop one."),
        _job(
            pipeline,
            "restore",
            back,
            "Put views and state of a savepoint back, from where they step on over the log; or make a lake of it.",
        ),
        _job(pipeline, "fork", make_second, "Make a second pipeline, in a lake of its own; its deliveries are off."),
    ]


def savepoint_step(pipeline: Pipeline, verb: Verb) -> str:
    """The name of the step of a job, which run configurations speak of."""
    return dagster_name(_STEPS[verb], pipeline.name)


def _job(pipeline: Pipeline, verb: Verb, step: Callable[[], Any], about: str) -> dg.JobDefinition:
    @dg.job(
        name=dagster_name(verb, pipeline.name),
        description=f"{pipeline.name}: {about}",
        tags={PIPELINE_TAG: pipeline.name},
        executor_def=dg.in_process_executor,
    )
    def run() -> None:
        step()

    return run


def _told(lake: Lake, pipeline: Pipeline) -> dict[str, dg.MetadataValue]:
    """All savepoints of the pipeline: age, size, and what each pins."""
    records = [_record(lake, each, utc_now()) for each in savepoints(lake, pipeline)]
    return {"savepoints": dg.MetadataValue.table(records, _SCHEMA)}


def _record(lake: Lake, saved: Savepoint, now: datetime) -> dg.TableRecord:
    pinned = (f"{table.place} at version {table.version}" for table in saved.tables if not table.kept_at)
    return dg.TableRecord(
        {
            "name": saved.name,
            "age_seconds": round((now - saved.taken_at).total_seconds()),
            "batches": saved.batches_in_words,
            "bytes": sum(table.size for table in saved.tables),
            "bytes_kept_for_it": kept_bytes(lake, saved),
            "pins": ", ".join(pinned),
        }
    )


def _restored(restored: Restored, root: str) -> dict[str, Any]:
    return {
        "savepoint": restored.savepoint.name,
        "lake": root,
        "from": restored.savepoint.batches_in_words,
        "bytes_copied": restored.copied,
        "left_as_they_are": ", ".join(restored.left_out) or "none",
        "next": "`tidemark redeliver` says what becomes of deliveries that wait",
    }

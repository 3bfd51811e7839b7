"""Compaction, vacuum and clean-up of every table of a pipeline, as a scheduled run beside the stream."""

# Not with postponed annotations: dagster reads those of ops when they are declared.
import dagster as dg

from platform_assets import keys
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.tags import MAINTENANCE_TAG
from platform_assets.texts.maintenance import told
from platform_assets.texts.retention import told_drop
from streaming import Pipeline, maintain
from streaming.operations import Maintained, drop_old_days


def maintenance_job(pipeline: Pipeline) -> dg.JobDefinition:
    """The maintenance job, which notes on the asset of the event log what it did to each table.

    Spark starts only where days of a log may be dropped.
    """

    @dg.op(name=keys.dagster_name("maintain", pipeline.name))
    def keep_tidy(context: dg.OpExecutionContext, lake: LakeResource, spark: SparkResource) -> None:
        for dropped in drop_old_days(lambda: spark.spark_session, lake.lake, pipeline, context.log.info):
            context.log.info(told_drop(dropped))
        done = maintain(lake.lake, pipeline)
        if not done:
            context.log.info(f"nothing was written to the tables of {pipeline.name} since they were maintained")
            return
        for entry in done:
            context.log.info(told(entry))
        context.log_event(
            dg.AssetObservation(
                keys.log_key(pipeline.stream), metadata={"maintenance": dg.MetadataValue.table(_records(done), _SCHEMA)}
            )
        )

    @dg.job(
        name=keys.dagster_name("maintenance", pipeline.name),
        description=f"Compact the small files of {pipeline.name}, and remove what no query needs any more.",
        tags={MAINTENANCE_TAG: pipeline.name},
        executor_def=dg.in_process_executor,
    )
    def maintenance() -> None:
        keep_tidy()

    return maintenance


_COLUMNS = ("table", "files_before", "files_after", "bytes_before", "bytes_after", "files_removed", "entries_removed")
_SCHEMA = dg.TableSchema([dg.TableColumn(name, "string" if name == "table" else "int") for name in _COLUMNS])


def _records(done: list[Maintained]) -> list[dg.TableRecord]:
    return [dg.TableRecord({name: getattr(entry, name) for name in _COLUMNS}) for entry in done]

"""The assets that a drain brings up to date: log, rejected rows, first results and late pairs of one pipeline."""

from collections.abc import Iterator

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from platform_assets import keys
from platform_assets.backlog import backlog_metadata
from platform_assets.metadata import counted, table_metadata, watermark_metadata
from platform_assets.partitions import add_days
from platform_assets.resources import LakeResource, SparkResource
from streaming import Lake, Pipeline, Windowed, delta, drain, plan
from streaming.late import late_pairs
from streaming.log import batches, head, read_log, rejected
from streaming.progress import shown_on


class DrainConfig(dg.Config):
    """How a drain ends."""

    end_of_input: bool = Field(
        default=False, description="Close the windows still open; rows that come later are late for them."
    )


def drain_assets(pipeline: Pipeline) -> dg.AssetsDefinition:
    """Log, rejected, and per view first results and late pairs: one step, because one process owns both tables.

    Rejected rows and late pairs are reads of the log, so here they are counted, not copied.
    """

    @dg.multi_asset(name=drain_step(pipeline), specs=list(_specs(pipeline)), can_subset=False)
    def run(
        context: dg.AssetExecutionContext, config: DrainConfig, lake: LakeResource, spark: SparkResource
    ) -> Iterator[dg.MaterializeResult]:
        where, session = lake.lake, spark.spark_session
        with shown_on(Console(soft_wrap=True)) as progress:
            drained = drain(session, where, pipeline, end_of_input=config.end_of_input, progress=progress)
        new = {name: query.rows for name, query in drained.queries.items()}
        yield dg.MaterializeResult(
            asset_key=keys.log_key(pipeline),
            metadata={
                **table_metadata(where.log(pipeline.stream)),
                **watermark_metadata(where, pipeline),
                "new_rows": new.get("log", 0),
            },
        )
        yield _count_rejected(session, where, pipeline)
        for view in pipeline.views:
            yield dg.MaterializeResult(
                asset_key=keys.view_key(view),
                metadata={
                    **table_metadata(where.first(view)),
                    **watermark_metadata(where, pipeline),
                    "new_windows": new.get(view.name, 0),
                },
            )
            late = count_late(context.instance, session, where, view)
            yield dg.MaterializeResult(asset_key=late.asset_key, metadata=late.metadata)

    return run


def drain_step(pipeline: Pipeline) -> str:
    """The name of the step, which run configurations speak of."""
    return f"drain_{pipeline.name}"


def count_late(
    instance: dg.DagsterInstance, spark: SparkSession, lake: Lake, view: Windowed
) -> dg.AssetMaterialization:
    """Count the late pairs, make their days partitions of the corrections, and say which wait for a correction."""
    newest = head(lake, view.of)
    backlog = [] if newest is None else plan(spark, lake, view, delta.version_of(lake.log(view.of)))
    add_days(instance, view, (entry.day for entry in backlog))
    per_day = {} if newest is None else _late_per_day(spark, lake, view)
    return dg.AssetMaterialization(
        keys.late_key(view),
        metadata={
            "dagster/row_count": sum(per_day.values()),
            "dagster/uri": dg.MetadataValue.path(lake.log(view.of)),
            "late_pairs": counted("day", per_day),
            "days_to_correct": len(backlog),
            **backlog_metadata(lake, view, backlog, None if newest is None else newest.number),
        },
    )


def _late_per_day(spark: SparkSession, lake: Lake, view: Windowed) -> dict[str, int]:
    days = late_pairs(read_log(spark, lake, view.of), view).groupBy("window_day").count()
    return {row["window_day"].isoformat(): row["count"] for row in days.orderBy("window_day").collect()}


def _count_rejected(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> dg.MaterializeResult:
    reasons: dict[str, int] = {}
    total = sum(batch.rejected for batch in batches(lake, pipeline.stream))
    if total:
        rows = rejected(read_log(spark, lake, pipeline.stream))
        rules = rows.select(F.explode("_rejected").alias("reason")).groupBy(F.split("reason", ": ")[0]).count()
        reasons = {row[0]: row[1] for row in rules.collect()}
    return dg.MaterializeResult(
        asset_key=keys.rejected_key(pipeline),
        metadata={
            "dagster/row_count": total,
            "dagster/uri": dg.MetadataValue.path(lake.log(pipeline.stream)),
            "reasons": counted("rule", reasons),
        },
    )


def _specs(pipeline: Pipeline) -> Iterator[dg.AssetSpec]:
    stream, log = pipeline.stream, keys.log_key(pipeline)
    read = "A read of the log, counted here and never copied."
    yield _spec(pipeline, log, keys.EVENT_LOG, f"Event log. {stream.description}", {"spark", "delta"})
    yield _spec(
        pipeline,
        keys.rejected_key(pipeline),
        keys.EVENT_LOG,
        f"Rows that broke a rule, with payload and reasons. {read}",
        {"spark"},
        log,
    )
    for view in pipeline.views:
        meaning = "\n".join(f"- `{name}`: {one.meaning}" for name, one in view.aggregates.items())
        description = f"First results, one row per closed window. {view.description}\n\n{meaning}"
        yield _spec(pipeline, keys.view_key(view), keys.FIRST_RESULTS, description, {"spark", "delta"}, log)
        yield _spec(
            pipeline,
            keys.late_key(view),
            keys.FIRST_RESULTS,
            f"Pairs of row and window that came after their window was closed. {read}",
            {"spark"},
            log,
        )


def _spec(
    pipeline: Pipeline, key: dg.AssetKey, group: str, description: str, kinds: set[str], *deps: dg.AssetKey
) -> dg.AssetSpec:
    return dg.AssetSpec(key, deps=deps, group_name=group, description=description, kinds=kinds, owners=[pipeline.owner])

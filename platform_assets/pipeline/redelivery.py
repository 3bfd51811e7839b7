"""Deliveries that can be repeated by day, as partitioned assets: to materialize a day delivers its rows again."""

# Not with postponed annotations: dagster reads those of assets when they are declared.
import dagster as dg

from platform_assets import keys
from platform_assets.events.delivered import delivery_metadata
from platform_assets.partitions import days_of, parse_days
from platform_assets.resources import LakeResource, SparkResource
from streaming import Delivery, Pipeline
from streaming.base import utc_now
from streaming.deliveries import DeliveryRuntime
from streaming.operations import redeliver_days

BY_DAY = "Each day of its table is a partition: materialize some, and their rows are delivered again as they stand."


def redelivery_asset(pipeline: Pipeline, delivery: Delivery, spec: dg.AssetSpec) -> dg.AssetsDefinition:
    """The delivery of the `spec`; any range of its days is one run, and so one JVM."""
    partitioned = spec.replace_attributes(description=f"{spec.description} {BY_DAY}", partitions_def=days_of(delivery))

    @dg.multi_asset(
        name=keys.dagster_name("backfill", delivery.folder, delivery.name),
        specs=[partitioned],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def run(context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource) -> dg.MaterializeResult:
        days = parse_days(context.partition_keys)
        done = redeliver_days(spark.spark_session, lake.lake, pipeline, delivery, days)
        if not done.done:
            raise dg.Failure(
                f"{', '.join(map(str, days))}: asked for, but not there yet. "
                + (f"{done.holder} delivers them." if done.holder else f"The target does not take it: {done.waiting}"),
                allow_retries=False,
            )
        return dg.MaterializeResult(metadata=delivery_metadata(DeliveryRuntime(delivery, lake.lake, utc_now)))

    return run

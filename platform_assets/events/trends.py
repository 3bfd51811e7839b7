"""The long run of a stream: one partition per hour, whose numbers Dagster draws over weeks."""

# Not with postponed annotations: dagster reads those of assets when they are declared.
from datetime import datetime, timedelta
from typing import Any

import dagster as dg

from platform_assets import keys
from platform_assets.resources import LakeResource
from platform_assets.specs import asset_spec
from streaming import Pipeline
from streaming.service import Measure, read_progress, together

HOURS = dg.HourlyPartitionsDefinition(start_date="2026-01-01-00:00")


def trend_asset(pipeline: Pipeline) -> dg.AssetsDefinition:
    """The stream's hour in numbers, from the progress table; an hour without a batch has zeros."""

    spec = asset_spec(
        pipeline,
        keys.trend_key(pipeline),
        "operations",
        f"Rates, rejected and late rows, batch times and latency of {pipeline.name}, hour by hour.",
        {"delta"},
        [keys.log_key(pipeline.stream)],
        partitions_def=HOURS,
    )

    # With one asset only: `asset` would derive the step's name from the key, which is not unambiguous.
    @dg.multi_asset(
        name=keys.dagster_name("trend_hours", pipeline.name),
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def trend(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
        for key in context.partition_keys:
            hour = HOURS.time_window_for_partition_key(key)
            measures = read_progress(lake.lake, pipeline, hour.start)
            within = [measure for measure in measures if measure.ended < hour.end]
            context.add_asset_metadata(hour_metadata(within, hour.end - hour.start), partition_key=key)

    return trend


def hour_metadata(measures: list[Measure], length: timedelta) -> dict[str, Any]:
    """The numbers of one partition, from the batches that ended in it."""
    log = together([measure for measure in measures if measure.is_of_log], length.total_seconds())
    p50, p95, p99 = log.latency or (None, None, None)
    numbers = {
        "rows": log.rows,
        "rejected": log.rejected,
        "late": log.late,
        "batches": log.batches,
        "rows_per_second": log.input_rate,
        "processing_rows_per_second": log.processing_rate,
        "batch_seconds": log.batch_seconds,
        "latency_p50_seconds": p50,
        "latency_p95_seconds": p95,
        "latency_p99_seconds": p99,
        "state_rows": max((measure.state_rows or 0 for measure in measures), default=0),
    }
    by_rule = {
        f"{outcome}_share_{rule}": number / rows if rows else 0.0
        # Only a valid row can warn.
        for outcome, rows, counts in (
            ("rejected", log.rows, log.reasons),
            ("warned", log.rows - log.rejected, log.warned),
        )
        for rule, number in counts.items()
    }
    return {name: value for name, value in {**numbers, **by_rule}.items() if value is not None}


def trend_schedule(pipeline: Pipeline) -> dg.ScheduleDefinition:
    """A few minutes after each hour, for the hour that has ended."""
    job = dg.define_asset_job(
        keys.dagster_name("trend", pipeline.name),
        selection=dg.AssetSelection.assets(keys.trend_key(pipeline)),
        description=f"The hours of {pipeline.name} in numbers.",
    )

    @dg.schedule(
        name=keys.dagster_name("trend_hourly", pipeline.name),
        job=job,
        cron_schedule="5 * * * *",
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.RUNNING,
        description=f"Puts the last hour of {pipeline.name} into its trend, if it ran.",
    )
    def last_hour(context: dg.ScheduleEvaluationContext, lake: LakeResource) -> dg.RunRequest | dg.SkipReason:
        now: datetime = context.scheduled_execution_time
        start = now.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
        if not read_progress(lake.lake, pipeline, start):
            return dg.SkipReason(f"{pipeline.name} has not run since {start:%H:%M}")
        return dg.RunRequest(partition_key=start.strftime("%Y-%m-%d-%H:%M"))

    return last_hour

"""Corrections as a partitioned asset, and as a step that takes any set of days: one function behind both."""

from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from platform_assets import keys
from platform_assets.events.backlog import settled_metadata
from platform_assets.events.counts import count_late
from platform_assets.events.current import report_current
from platform_assets.events.metadata import partitioned_metadata
from platform_assets.lineage import lineage_from_logs
from platform_assets.partitions import add_days, days_of, parse_days
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.specs import asset_spec
from streaming import Lake, Pipeline, Windowed, correct, plan
from streaming.base import utc_now
from streaming.declare import CORRECTIONS
from streaming.log import head

Evaluate = Callable[[SparkSession, Lake, str], Iterable[dg.AssetCheckEvaluation]]


class CorrectionsConfig(dg.Config):
    """Which days are corrected."""

    days: list[str] = Field(
        default=[], description="ISO days, such as 2013-01-05; none means every day that the planner finds."
    )


def corrections_asset(pipeline: Pipeline, view: Windowed) -> dg.AssetsDefinition:
    """The corrections of a view; any range of its days is one run, and so one JVM."""

    columns = view.columns_of(CORRECTIONS)
    spec = asset_spec(
        pipeline,
        keys.corrections_key(view),
        "corrections",
        f"The windows of {view.name} that have late pairs, recomputed from all their rows. A day is replaced "
        "whole, so running it again changes nothing.",
        {"spark", "delta"},
        [keys.log_key(view.of), keys.late_key(view)],
        columns,
        lineage_from_logs(pipeline, columns),
        partitions_def=days_of(view),
    )

    # With one asset only: `asset` would derive the step's name from the key, which is not unambiguous.
    @dg.multi_asset(
        name=keys.dagster_name("backfill", view.of.name, view.name),
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def run(context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource) -> dg.MaterializeResult:
        done = _correct(context, lake.lake, spark, view, parse_days(context.partition_keys))
        for day, metadata in done.items():
            context.add_asset_metadata(metadata, partition_key=day.isoformat())
        report_current(context, spark.spark_session, lake.lake, view)
        return dg.MaterializeResult(metadata=partitioned_metadata(lake.lake.corrections(view)))

    return run


def corrections_op(view: Windowed, evaluate: Evaluate) -> dg.OpDefinition:
    """A step that corrects any set of days, next to each other or not, and marks exactly those partitions.

    Dagster itself would start one run, and so one JVM, per unbroken range of days. `evaluate` runs the checks of the
    corrections, which an asset's own run would bring along.
    """

    @dg.op(name=correct_step(view), out=dg.Out(dg.Nothing))
    def run(
        context: dg.OpExecutionContext, config: CorrectionsConfig, lake: LakeResource, spark: SparkResource
    ) -> None:
        where = lake.lake
        asked, newest = parse_days(config.days), head(where, view.of)
        settled = {} if asked or newest is None else settled_metadata(newest.number)
        if not asked:
            planned = plan(spark.spark_session, where, view)
            asked = [entry.day for entry in planned]
            context.log.info(f"{view.name}: planned {', '.join(map(str, asked)) or 'nothing, all is corrected'}")
        if asked:
            add_days(context.instance, view, asked)
            done = _correct(context, where, spark, view, asked)
            table = partitioned_metadata(where.corrections(view))
            for day, metadata in done.items():
                context.log_event(
                    dg.AssetMaterialization(
                        keys.corrections_key(view), partition=day.isoformat(), metadata={**table, **metadata}
                    )
                )
            report_current(context, spark.spark_session, where, view)
        # Observed, not materialized: the corrections made of it would look outdated at once.
        left = count_late(context.instance, spark.spark_session, where, view)
        context.log_event(dg.AssetObservation(keys.late_key(view), metadata={**left, **settled}))
        if asked:
            failed = []
            for evaluation in evaluate(spark.spark_session, where, context.run_id):
                context.log_event(evaluation)  # type: ignore[arg-type]
                failed += [] if evaluation.passed else [f"{evaluation.check_name}: {evaluation.description}"]
            if failed:
                raise dg.Failure(f"corrections of {view.name} broke {'; '.join(failed)}", allow_retries=False)

    return run


def correct_step(view: Windowed) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("correct", view.of.name, view.name)


def _correct(
    context: Any, lake: Lake, spark: SparkResource, view: Windowed, days: list[date]
) -> dict[date, dict[str, Any]]:
    def tell(day: date, windows: int) -> None:
        context.log.info(f"{view.name} {day}: {windows} windows corrected")

    corrected = correct(spark.spark_session, lake, view, days, utc_now, tell)
    newest = head(lake, view.of)
    through = {} if newest is None else {"through_batch": newest.number}
    return {
        day: {"dagster/partition_row_count": windows, "corrected_windows": windows, **through}
        for day, windows in corrected.items()
    }

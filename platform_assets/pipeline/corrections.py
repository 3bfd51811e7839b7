"""Corrections as a partitioned asset, and as a step that takes any set of days: one function behind both."""

from collections.abc import Callable, Iterable, Mapping
from datetime import date
from functools import partial
from typing import Any

import dagster as dg
from pydantic import Field
from pyspark.sql import SparkSession

from platform_assets import keys
from platform_assets.events.backlog import settled_now
from platform_assets.events.counts import count_late
from platform_assets.events.current import report_current
from platform_assets.events.metadata import partitioned_metadata
from platform_assets.lineage import lineage_of_table
from platform_assets.partitions import add_days, days_of, parse_days
from platform_assets.resources import LakeResource, SparkResource
from platform_assets.specs import asset_spec
from streaming import Lake, Pipeline
from streaming.base import CorrectionsFailed, utc_now
from streaming.changes import note_together, publish
from streaming.declare import CORRECTIONS, Operator
from streaming.log import head
from streaming.operators import plan_corrections, runtime_of
from streaming.service import JobCounts, corrections_of, lineage_of

Evaluate = Callable[[SparkSession, Lake, str], Iterable[dg.AssetCheckEvaluation]]


class CorrectionsConfig(dg.Config):
    """Which days are corrected."""

    days: list[str] = Field(
        default=[], description="ISO days, such as 2013-01-05; none means every day that the planner finds."
    )


def corrections_asset(pipeline: Pipeline, operator: Operator) -> dg.AssetsDefinition:
    """The corrections of an operator; any range of its days is one run, and so one JVM."""

    columns = operator.columns_of(CORRECTIONS)
    late = [keys.late_key(operator)] if operator.tells_late else []
    spec = asset_spec(
        pipeline,
        keys.corrections_key(operator),
        "corrections",
        f"The {operator.corrected_name} of {operator.name} that have late "
        "rows, recomputed from all their rows. A day is replaced whole, so running it again changes nothing.",
        {"spark", "delta"},
        [*map(keys.log_key, operator.reads), *late],
        columns,
        lineage_of_table(operator, CORRECTIONS),
        f"{pipeline.name}/{operator.name}",
        operator.explained_by,
        partitions_def=days_of(operator),
    )

    # With one asset only: `asset` would derive the step's name from the key, which is not unambiguous.
    @dg.multi_asset(
        name=keys.dagster_name("backfill", operator.folder, operator.name),
        specs=[spec],
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def run(context: dg.AssetExecutionContext, lake: LakeResource, spark: SparkResource) -> dg.MaterializeResult:
        where = lake.lake
        done, failed = _correct(context, where, spark, pipeline, operator, parse_days(context.partition_keys))
        report_current(context, where, operator)
        if failed is not None:
            _materialize(context, where, operator, done)
            raise dg.Failure(str(failed), allow_retries=False)
        for day, metadata in done.items():
            context.add_asset_metadata(metadata, partition_key=day.isoformat())
        return dg.MaterializeResult(metadata=_table_metadata(where, operator))

    return run


def corrections_op(pipeline: Pipeline, operator: Operator, evaluate: Evaluate) -> dg.OpDefinition:
    """A step that corrects any set of days, next to each other or not, and marks exactly those partitions.

    Dagster itself would start one run, and so one JVM, per unbroken range of days. `evaluate` runs the checks of the
    corrections, which an asset's own run would bring along.
    """

    @dg.op(name=correct_step(operator), out=dg.Out(dg.Nothing))
    def run(
        context: dg.OpExecutionContext, config: CorrectionsConfig, lake: LakeResource, spark: SparkResource
    ) -> None:
        where = lake.lake
        asked = parse_days(config.days)
        settled = {} if asked else settled_now(where, operator)
        if not asked:
            planned = plan_corrections(spark.spark_session, where, operator)
            asked = [entry.day for entry in planned]
            context.log.info(f"{operator.name}: planned {', '.join(map(str, asked)) or 'nothing, all is corrected'}")
        if asked:
            add_days(context.instance, operator, asked)
            done, uncorrected = _correct(context, where, spark, pipeline, operator, asked)
            _materialize(context, where, operator, done)
            report_current(context, where, operator)
            # A day that failed is planned again, also where no newer batch comes.
            settled = {} if uncorrected is not None else settled
        # Observed, not materialized: the corrections made of it would look outdated at once.
        if operator.tells_late:
            left = count_late(context.instance, spark.spark_session, where, operator)
            context.log_event(dg.AssetObservation(keys.late_key(operator), metadata={**left, **settled}))
        if asked:
            failed = [] if uncorrected is None else [str(uncorrected)]
            for evaluation in evaluate(spark.spark_session, where, context.run_id):
                context.log_event(evaluation)  # type: ignore[arg-type]
                broke = f"{evaluation.check_name} is broken: {evaluation.description}"
                warns = evaluation.severity == dg.AssetCheckSeverity.WARN
                failed += [] if evaluation.passed or warns else [broke]
            if failed:
                raise dg.Failure(f"corrections of {operator.name}: {'; '.join(failed)}", allow_retries=False)

    return run


def correct_step(operator: Operator) -> str:
    """The name of the step, which run configurations speak of."""
    return keys.dagster_name("correct", operator.folder, operator.name)


def _correct(
    context: Any, lake: Lake, spark: SparkResource, pipeline: Pipeline, operator: Operator, days: list[date]
) -> tuple[dict[date, dict[str, Any]], CorrectionsFailed | None]:
    """Metadata of each day that was corrected, and why others could not be; null where all were."""

    def tell(day: date, windows: int) -> None:
        context.log.info(f"{operator.name} {day}: {windows} windows corrected")

    failed: CorrectionsFailed | None = None
    corrected: Mapping[date, int]
    with lineage_of(pipeline, partial(corrections_of, lake, pipeline, operator)) as counts:
        try:
            corrected = runtime_of(operator, lake).correct(spark.spark_session, days, utc_now, tell)
        except CorrectionsFailed as error:
            failed, corrected = error, error.corrected
        counts[operator.name] = JobCounts(sum(corrected.values()), error=None if failed is None else str(failed))
        publish(spark.spark_session, lake, operator)
    note_together(lake, pipeline)
    through = {stream.name: head(lake, stream) for stream in operator.reads}
    named = {
        "through_batch" if len(through) == 1 else f"through_batch_of_{name}": newest.number
        for name, newest in through.items()
        if newest is not None
    }
    told = {
        day: {"dagster/partition_row_count": windows, "corrected_windows": windows, **named}
        for day, windows in corrected.items()
    }
    return told, failed


def _table_metadata(lake: Lake, operator: Operator) -> dict[str, Any]:
    return partitioned_metadata(lake.corrections(operator), lineage_of_table(operator, CORRECTIONS))


def _materialize(context: Any, lake: Lake, operator: Operator, corrected: Mapping[date, dict[str, Any]]) -> None:
    """Mark exactly these days as corrected."""
    table = _table_metadata(lake, operator)
    for day, metadata in corrected.items():
        context.log_event(
            dg.AssetMaterialization(
                keys.corrections_key(operator), partition=day.isoformat(), metadata={**table, **metadata}
            )
        )

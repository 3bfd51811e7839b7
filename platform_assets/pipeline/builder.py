"""Everything Dagster knows of one pipeline, made from its declaration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import SparkSession

from platform_assets import keys
from platform_assets.events.alerts import alert_checks, alert_sensor
from platform_assets.events.evaluations import evaluations_of
from platform_assets.events.trends import trend_asset, trend_schedule
from platform_assets.pipeline.catalogs import catalog_checks
from platform_assets.pipeline.checks import check_table, roles, table_checks
from platform_assets.pipeline.corrections import Evaluate, corrections_asset
from platform_assets.pipeline.deliveries import delivery_assets, delivery_checks, reconciliation_schedule
from platform_assets.pipeline.drain import current_assets, drain_assets
from platform_assets.pipeline.jobs import corrections_job, drain_job, report_job
from platform_assets.pipeline.maintenance import maintenance_job
from platform_assets.pipeline.repair import repair_job
from platform_assets.pipeline.reports import dimension_assets, report_asset, report_checks
from platform_assets.pipeline.retraction import retraction_job
from platform_assets.pipeline.savepoints import savepoint_jobs
from platform_assets.pipeline.schedules import corrections_schedule, maintenance_schedule
from platform_assets.pipeline.sensors import backlog_sensor, commits_sensor, report_sensor
from platform_assets.pipeline.sources import arrivals_sensor, source_assets
from platform_assets.pipeline.stream import control_job, keeper_sensor, stream_job
from platform_assets.reports.report import Report
from quality import Suite, role_of_corrections, suites_for
from streaming import Lake, Pipeline
from streaming.declare import Operator

if TYPE_CHECKING:
    from platform_assets.pipeline.jobs import AssetJob


def pipeline_definitions(pipeline: Pipeline, reports: Sequence[Report] = ()) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedule of a pipeline and of the `reports` on it."""
    suites = suites_for(pipeline)
    drain = drain_job(pipeline)
    corrections = corrections_job(pipeline, lambda operator: _checks_of_corrections(pipeline, operator, suites))
    stream, maintenance = stream_job(pipeline), maintenance_job(pipeline)
    own = dg.Definitions(
        assets=[
            source_assets(pipeline),
            drain_assets(pipeline),
            *current_assets(pipeline),
            *(corrections_asset(pipeline, operator) for operator in pipeline.backfilled),
            trend_asset(pipeline),
            *delivery_assets(pipeline),
        ],
        asset_checks=[
            *(table_checks(pipeline, role, key, suites[role]) for role, key in roles(pipeline).items()),
            alert_checks(pipeline),
            *delivery_checks(pipeline),
            *catalog_checks(pipeline),
        ],
        jobs=[
            drain,
            corrections,
            repair_job(pipeline),
            retraction_job(pipeline),
            stream,
            control_job(pipeline),
            maintenance,
            *savepoint_jobs(pipeline),
        ],
        sensors=[
            arrivals_sensor(pipeline, drain),
            backlog_sensor(pipeline, corrections),
            keeper_sensor(pipeline, stream),
            alert_sensor(pipeline),
            commits_sensor(pipeline, reports),
        ],
        schedules=[
            corrections_schedule(pipeline, corrections),
            maintenance_schedule(pipeline, maintenance),
            trend_schedule(pipeline),
            *([reconciliation_schedule(pipeline)] if pipeline.deliveries else []),
        ],
    )
    return dg.Definitions.merge(own, *(_report_definitions(report, (drain, corrections)) for report in reports))


def _report_definitions(report: Report, after: Sequence[AssetJob | dg.JobDefinition]) -> dg.Definitions:
    job = report_job(report)
    return dg.Definitions(
        assets=[report_asset(report), *dimension_assets(report)],
        asset_checks=[report_checks(section, report) for section in report.sections],
        jobs=[job],
        sensors=[report_sensor(report, job, after)],
    )


def _checks_of_corrections(pipeline: Pipeline, operator: Operator, suites: dict[str, Suite]) -> Evaluate:
    role, key = role_of_corrections(operator.name), keys.corrections_key(operator)

    def evaluate(spark: SparkSession, lake: Lake, run_id: str) -> Iterable[dg.AssetCheckEvaluation]:
        # Of what is no view, only a project's own module says what must hold.
        if role not in suites:
            return ()
        return evaluations_of(check_table(pipeline, role, key, suites[role], lake, lambda: spark, run_id).values())

    return evaluate

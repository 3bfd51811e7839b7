"""The jobs of a pipeline and of a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

from platform_assets import keys
from platform_assets.pipeline.corrections import Evaluate, correct_step, corrections_op
from platform_assets.pipeline.drain import drain_step
from platform_assets.reports.report import Report
from platform_assets.tags import PIPELINE_TAG
from streaming import Pipeline
from streaming.declare import Operator
from streaming.service import ALERTS

if TYPE_CHECKING:
    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition as AssetJob


def drain_job(pipeline: Pipeline) -> AssetJob:
    """Everything that has arrived goes through the pipeline, and every expectation of its tables is asked."""
    return dg.define_asset_job(
        keys.dagster_name("drain", pipeline.name),
        selection=dg.AssetSelection.assets(*keys.streamed_keys(pipeline)) - alert_selection(pipeline),
        description=f"Ingest what has arrived for {pipeline.name}, bring its views up to date, check both.",
        tags={PIPELINE_TAG: pipeline.name},
    )


def drain_config(pipeline: Pipeline) -> dict[str, Any]:
    """The run configuration of a drain job that closes also the windows still open."""
    return {"ops": {drain_step(pipeline): {"config": {"end_of_input": True}}}}


def corrections_job(pipeline: Pipeline, evaluate: Callable[[Operator], Evaluate]) -> dg.JobDefinition:
    """Any set of days in one run; `evaluate` gives the checks of an operator's corrections."""

    @dg.job(
        name=keys.dagster_name("corrections", pipeline.name),
        description=(
            "Correct the given days of each view and join, or, without days, those that the planner finds to have late "
            "pairs newer than their correction. One run and one JVM, whatever the days."
        ),
        tags={PIPELINE_TAG: pipeline.name},
        executor_def=dg.in_process_executor,
    )
    def corrections() -> None:
        for operator in pipeline.backfilled:
            corrections_op(pipeline, operator, evaluate(operator))()

    return corrections


def corrections_config(pipeline: Pipeline, days: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The run configuration of a corrections job: ISO days by operator, none where they are to be planned."""
    operators = {operator.name: operator for operator in pipeline.backfilled}
    steps = {correct_step(operators[name]): list(chosen) for name, chosen in days.items()}
    return {"ops": {step: {"config": {"days": chosen}} for step, chosen in steps.items()}}


def alert_selection(pipeline: Pipeline) -> dg.AssetSelection:
    """The alerts on a running stream: checks of its log that say nothing of the data."""
    return dg.AssetSelection.checks(*(dg.AssetCheckKey(keys.log_key(pipeline.stream), name) for name in ALERTS))


def report_job(report: Report) -> AssetJob:
    """The gate and the report behind it, with the checks of everything that the report reads."""
    read = [*map(keys.log_key, report.streams), *keys.result_keys(report.operators)]
    sections = dg.AssetSelection.assets(*(keys.report_key(section.table) for section in report.sections))
    return dg.define_asset_job(
        keys.report_name(report.name),
        selection=sections | (dg.AssetSelection.checks_for_assets(*read) - alert_selection(report.pipeline)),
        description=f"Publish {report.name} if every expectation on what it reads has passed: {report.description}",
    )

"""The code location: everything Dagster knows, made from what is declared."""

import warnings

import dagster as dg

from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.reports.registry import declared_reports
from platform_assets.resources import default_resources
from streaming import declared_pipelines

# Versions are pinned, so that a beta parameter does not change under us.
warnings.filterwarnings("ignore", category=dg.BetaWarning)

_reports = declared_reports().values()

defs = dg.Definitions.merge(
    *(
        pipeline_definitions(pipeline, [report for report in _reports if report.pipeline == pipeline])
        for pipeline in declared_pipelines().values()
    ),
    # One process, and so one JVM, per run: Dagster's own choice would be one per step.
    dg.Definitions(resources=default_resources(), executor=dg.in_process_executor),
)

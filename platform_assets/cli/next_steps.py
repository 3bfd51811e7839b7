"""The command to propose where it depends on what the pipeline at hand has."""

from __future__ import annotations

import os

from platform_assets.reports.registry import declared_reports
from streaming.declare import Pipeline
from streaming.lake import Lake

FEEDS = ("flights",)
"""The pipelines that `tidemark feed` has data for."""


def after_audit(pipeline: Pipeline) -> tuple[str, str]:
    """The command to type once every law holds, and why: a report, if one is declared on the pipeline."""
    for report in declared_reports().values():
        if report.pipeline.name == pipeline.name:
            return f"tidemark report {report.name}", "publishes the report, if its gate opens."
    return shows_results(pipeline)


def shows_results(pipeline: Pipeline) -> tuple[str, str]:
    """The command that shows what a pipeline has computed, and why to type it."""
    others = ", ".join(operator.name for operator in pipeline.operators[1:])
    what = " current" if pipeline.operators[0] in pipeline.views else ""
    why = f"shows the results; --view shows those of {others}." if others else "shows the results."
    return f"tidemark show {pipeline.name}{what}", why


def after_demo() -> tuple[str, str]:
    """The command to type after a demo, and why: as it was started, by make or by the command."""
    command = "make ui" if "MAKELEVEL" in os.environ else "tidemark ui"
    return command, "opens Dagster on the runs, the graph, the checks and the chart."


def when_nothing_arrived(lake: Lake, pipeline: Pipeline) -> tuple[str, str]:
    """The command to type while the source is empty, and why."""
    if pipeline.name in FEEDS:
        return f"tidemark feed {pipeline.name}", "lets something arrive."
    if pipeline.receivers:
        return f"tidemark receive {pipeline.name}", "lets something land."
    landing = " and ".join(stream.source.location(lake) for stream in pipeline.streams)
    return f"tidemark run {pipeline.name}", f"ingests what is in {landing} by then."

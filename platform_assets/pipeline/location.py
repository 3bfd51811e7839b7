"""What the code location holds: every pipeline that can be loaded, while a broken module leaves out its own alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator

import dagster as dg

from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.reports.registry import broken_reports, declared_reports
from platform_assets.resources import default_resources
from quality import SuiteError
from streaming import broken_modules, declared_pipelines

_log = logging.getLogger("tidemark")


def definitions() -> dg.Definitions:
    """Everything that is declared, for a code location; merge assets of your own with it by `dg.Definitions.merge`."""
    # Versions are pinned, so that a beta parameter does not change under us.
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    return dg.Definitions.merge(
        *loadable_definitions(),
        # One process, and so one JVM, per run: Dagster's own choice would be one per step.
        dg.Definitions(resources=default_resources(), executor=dg.in_process_executor),
    )


def loadable_definitions() -> Iterator[dg.Definitions]:
    """The definitions of each pipeline and the reports on it; warns of each module that is left out, in one line.

    A pipeline whose suite is broken is left out whole: without its expectations, a run would let pass what they refuse.
    """
    for module in (*broken_modules(), *broken_reports()):
        _log.warning("left out: %s", module)
    reports = declared_reports().values()
    for pipeline in declared_pipelines().values():
        try:
            yield pipeline_definitions(pipeline, [report for report in reports if report.pipeline == pipeline])
        except SuiteError as error:
            _log.warning("pipeline %s is left out: %s", pipeline.name, error)

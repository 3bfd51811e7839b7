"""The code location's content: every pipeline that can be loaded, while a broken module leaves out its own alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import dagster as dg

from platform_assets.pipeline.builder import pipeline_definitions
from platform_assets.reports.registry import broken_reports, declared_reports
from platform_assets.resources import default_resources
from quality import SuiteError
from streaming import broken_modules, declared_pipelines, find_pipeline

_log = logging.getLogger("tidemark")


def definitions(pipelines: Iterable[str] | None = None) -> dg.Definitions:
    """Everything that is declared, for a code location, or of these `pipelines` only.

    Merge assets of your own with it by `dg.Definitions.merge`.

    Raises:
        DeclarationError: one of `pipelines` is not declared.
    """
    # Versions are pinned, so that a beta parameter does not change under us.
    warnings.filterwarnings("ignore", category=dg.BetaWarning)
    return dg.Definitions.merge(
        *loadable_definitions(pipelines),
        # One process, and so one JVM, per run: Dagster's own choice would be one per step.
        dg.Definitions(resources=_resources(), executor=dg.in_process_executor),
    )


@cache
def _resources() -> dict[str, Any]:
    # Dagster merges definitions only if their resources are the same objects.
    return default_resources()


def loadable_definitions(pipelines: Iterable[str] | None = None) -> Iterator[dg.Definitions]:
    """The definitions of each pipeline and the reports on it; warns of each module that is left out, in one line.

    A pipeline whose suite is broken is left out whole: without its expectations, a run would let pass what they refuse.
    """
    for module in (*broken_modules(), *broken_reports()):
        _log.warning("left out: %s", module)
    reports = declared_reports().values()
    chosen = declared_pipelines().values() if pipelines is None else map(find_pipeline, pipelines)
    for pipeline in chosen:
        try:
            yield pipeline_definitions(pipeline, [report for report in reports if report.pipeline == pipeline])
        except SuiteError as error:
            _log.warning("pipeline %s is left out: %s", pipeline.name, error)

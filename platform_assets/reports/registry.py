"""Finds the declared reports: every module with a `report`, in the packages that `TIDEMARK_REPORTS` names."""

from __future__ import annotations

from platform_assets.reports.errors import UnknownReport
from platform_assets.reports.report import Report
from streaming.base import BrokenModule, Discovery, discover
from streaming.declare import Pipeline, modules, packages
from streaming.operations import RetractionPreview


def declared_reports() -> dict[str, Report]:
    """The reports that can be published, by name; `broken_reports` has the others."""
    return _discovery().by_name


def broken_reports() -> tuple[BrokenModule, ...]:
    """The modules that cannot be imported, and those whose reports write one table."""
    return _discovery().broken


def find_report(name: str) -> Report:
    """The report of that name.

    Raises:
        UnknownReport: there is none; the text lists those there are, then the broken modules, one a line.
    """
    place = " or ".join(packages("reports")).replace(".", "/")
    return _discovery().find(name, "report", place, UnknownReport)


def reports_reached(pipeline: Pipeline, preview: RetractionPreview) -> tuple[str, ...]:
    """The names of the reports that read what a retraction from a stream of the pipeline would change."""
    changed = {(pipeline.name, preview.stream), *((each.pipeline, each.name) for each in preview.followers)}
    return tuple(
        name
        for name, report in declared_reports().items()
        if {(report.pipeline.name, each) for each in _names_read(report)} & changed
    )


def _names_read(report: Report) -> set[str]:
    return {each.name for each in report.streams} | {each.name for each in report.operators}


def _discovery() -> Discovery[Report]:
    return discover(modules("reports"), "report", Report, _conflict)


def _conflict(one: Report, other: Report) -> str | None:
    tables = {section.table for section in other.sections}
    shared = [section.table for section in one.sections if section.table in tables]
    if shared:
        return f"write table {shared[0]!r}; rename that section in one of them"
    declared = {dimension.name: dimension for dimension in other.dimensions}
    differ = [dimension.name for dimension in one.dimensions if declared.get(dimension.name, dimension) != dimension]
    return f"declare dimension {differ[0]!r} differently; rename it in one of them, or share it" if differ else None

"""Finds the declared reports: every module of `platform_assets.reports` that has a `report`."""

from __future__ import annotations

import importlib
import pkgutil

from platform_assets import reports
from platform_assets.reports.errors import UnknownReport
from platform_assets.reports.report import Report


def declared_reports() -> dict[str, Report]:
    """All reports by name."""
    found = {}
    for module in pkgutil.iter_modules(reports.__path__):
        report = getattr(importlib.import_module(f"{reports.__name__}.{module.name}"), "report", None)
        if isinstance(report, Report):
            found[report.name] = report
    return found


def find_report(name: str) -> Report:
    """The report of that name.

    Raises:
        UnknownReport: there is none; the text lists those there are.
    """
    known = declared_reports()
    if name not in known:
        raise UnknownReport(
            f"there is no report {name!r}; declared are: {', '.join(sorted(known)) or 'none'}. A report is a module of "
            "platform_assets/reports with a variable `report`."
        )
    return known[name]

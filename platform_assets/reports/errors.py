"""The errors of reports; what the gate refuses is `quality.GateClosed`."""

from __future__ import annotations

from platform_assets.errors import PlatformError


class ReportError(PlatformError):
    """Base of all errors of reports."""

    code = "report"


class UnknownReport(ReportError):
    """There is no report of that name."""

    code = "report.unknown"


class NothingToReport(ReportError):
    """The pinned versions hold nothing that the report could tell."""

    code = "report.empty"


class NewerIsPublished(ReportError):
    """The report is published from newer versions than those that were pinned, and stays as it is."""

    code = "report.newer"


class DimensionError(ReportError):
    """There is nothing where a dimension should be, or it is not what is declared."""

    code = "report.dimension"

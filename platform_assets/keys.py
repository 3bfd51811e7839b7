"""Asset keys, named like a table's place in the lake, groups, and the names of everything else that Dagster knows."""

from __future__ import annotations

import re
from typing import Literal, get_args

import dagster as dg

from streaming import Pipeline, Windowed

EVENT_LOG = "event_log"
FIRST_RESULTS = "first_results"
CORRECTIONS = "corrections"
REPORTS = "reports"
OPERATIONS = "operations"


def log_key(pipeline: Pipeline) -> dg.AssetKey:
    """The event log."""
    return dg.AssetKey([pipeline.name, "log"])


def rejected_key(pipeline: Pipeline) -> dg.AssetKey:
    """The rejected rows of the log."""
    return dg.AssetKey([pipeline.name, "rejected"])


def view_key(view: Windowed) -> dg.AssetKey:
    """The first results of a view."""
    return dg.AssetKey([view.of.name, view.name])


def late_key(view: Windowed) -> dg.AssetKey:
    """The late pairs of a view."""
    return dg.AssetKey([view.of.name, f"{view.name}_late"])


def corrections_key(view: Windowed) -> dg.AssetKey:
    """The corrections of a view."""
    return dg.AssetKey([view.of.name, f"{view.name}_corrections"])


def updates_key(view: Windowed) -> dg.AssetKey:
    """What the stream process itself corrected of a view."""
    return dg.AssetKey([view.of.name, f"{view.name}_updates"])


def open_key(view: Windowed) -> dg.AssetKey:
    """The windows of a view that are still open."""
    return dg.AssetKey([view.of.name, f"{view.name}_open"])


def trend_key(pipeline: Pipeline) -> dg.AssetKey:
    """The hours of the running stream in numbers."""
    return dg.AssetKey([pipeline.name, "trend"])


def result_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """Everything that `current` is made of: first results, updates, corrections."""
    return [
        *(view_key(view) for view in pipeline.views),
        *(updates_key(view) for view in pipeline.updated),
        *(corrections_key(view) for view in pipeline.corrected),
    ]


def report_key(name: str) -> dg.AssetKey:
    """A published report."""
    return dg.AssetKey(["reports", name])


Kind = Literal[
    # Jobs
    "control",
    "corrections",
    "drain",
    "maintenance",
    "publication",
    "repair",
    "stream",
    "trend",
    # Steps; they share one namespace with the jobs.
    "alerts",
    "ask",
    "backfill",
    "checks",
    "correct",
    "drain_step",
    "maintain",
    "publish",
    "repair_step",
    "supervise",
    "trend_hours",
    # Sensors and schedules
    "corrections_hourly",
    "follows",
    "keeper",
    "late_data",
    "maintenance_hourly",
    "trend_hourly",
    # Sets of partitions
    "days",
]
"""What a name stands for. No kind ends with `_` and another kind, so that the end of a name tells its kind."""

KINDS: tuple[Kind, ...] = get_args(Kind)


def dagster_name(kind: Kind, *owner: str) -> str:
    """The name in Dagster of what belongs to `owner`: a pipeline, or a pipeline and one of its tables.

    `flights_drain`, `flights__departures_by_origin_days`. Different arguments never give the same name: between two
    underscores of a part, and after one at its end, stands `U`, which no part contains, so that `__` separates parts.
    """
    return f"{'__'.join(_without_double_underscores(part) for part in owner)}_{kind}"


def report_name(report: str) -> str:
    """The name of a report's job: the report's own, unless that reads as the name of something of a pipeline."""
    reads_as_a_pipelines = any(report.endswith(f"_{kind}") for kind in KINDS)
    return dagster_name("publication", report) if reads_as_a_pipelines else report


def _without_double_underscores(part: str) -> str:
    return re.sub(r"_(?=_|$)", "_U", part)

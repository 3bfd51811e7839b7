"""Asset keys and groups: one asset per table, named like the table's place in the lake."""

from __future__ import annotations

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

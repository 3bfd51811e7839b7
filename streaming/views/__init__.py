"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from streaming.views.corrections import correct, corrected_through, ended_since, plan, read_corrections
from streaming.views.current import current_results
from streaming.views.first_results import first_results, read_first
from streaming.views.late import duplicates, late_pairs, unassigned
from streaming.views.open_windows import read_open
from streaming.views.operator import WindowedRuntime
from streaming.views.results import aggregate, assign, group, pairs
from streaming.views.updates import read_updates

__all__ = [
    "WindowedRuntime",
    "aggregate",
    "assign",
    "correct",
    "corrected_through",
    "current_results",
    "duplicates",
    "ended_since",
    "first_results",
    "group",
    "late_pairs",
    "pairs",
    "plan",
    "read_corrections",
    "read_first",
    "read_open",
    "read_updates",
    "unassigned",
]

"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from streaming.views.corrections import correct, corrected_through, ended_since, plan
from streaming.views.current import current_results
from streaming.views.first_results import read_first
from streaming.views.late import late_pairs
from streaming.views.operator import WindowedRuntime
from streaming.views.position import Position
from streaming.views.results import aggregate, assign, group, pairs

__all__ = [
    "Position",
    "WindowedRuntime",
    "aggregate",
    "assign",
    "correct",
    "corrected_through",
    "current_results",
    "ended_since",
    "group",
    "late_pairs",
    "pairs",
    "plan",
    "read_first",
]

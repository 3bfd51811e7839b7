"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from streaming.views.bootstrap import (
    Bootstrap,
    bootstrap_view,
    has_started,
)
from streaming.views.corrections import (
    PendingDay,
    correct,
    corrected_through,
    correction,
    plan,
    read_corrections,
)
from streaming.views.current import (
    current_results,
)
from streaming.views.first_results import (
    FirstResults,
    dropped_ever,
    first_results,
    read_first,
)
from streaming.views.late import (
    duplicates,
    late_pairs,
    unassigned,
)
from streaming.views.open_windows import (
    EarlyResults,
    read_open,
)
from streaming.views.position import (
    Position,
    position,
)
from streaming.views.updates import (
    in_lateness,
    read_updates,
    update,
    updated_through,
    updates_between,
)

__all__ = [
    "Bootstrap",
    "EarlyResults",
    "FirstResults",
    "PendingDay",
    "Position",
    "bootstrap_view",
    "correct",
    "corrected_through",
    "correction",
    "current_results",
    "dropped_ever",
    "duplicates",
    "first_results",
    "has_started",
    "in_lateness",
    "late_pairs",
    "plan",
    "position",
    "read_corrections",
    "read_first",
    "read_open",
    "read_updates",
    "unassigned",
    "update",
    "updated_through",
    "updates_between",
]

"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from streaming.views.computation import Computation, computation_of
from streaming.views.corrections import (
    correct,
    corrected_through,
    correction,
    ended_since,
    is_closed,
    logs_of,
    pending,
    plan,
    read_corrections,
    until,
)
from streaming.views.current import current_results, current_with_reasons, pinned_windows, read_first
from streaming.views.kinds import kind_of
from streaming.views.late import late_pairs, late_rows
from streaming.views.operator import WindowedRuntime
from streaming.views.partial_results import PartialColumns, keep_days, rows_as_partial
from streaming.views.results import (
    aggregate,
    as_batch,
    assign,
    group,
    has_days,
    pairs,
    possible_bounds,
    possible_pairs,
)
from streaming.views.runtime import OverWindowsRuntime
from streaming.views.updates import read_updates, updated_through
from streaming.views.view import OfView

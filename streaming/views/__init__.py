"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from streaming.views.corrections import (
    correct,
    corrected_through,
    days_of_session,
    ended_since,
    plan,
    read_corrections,
)
from streaming.views.current import current_results, current_with_reasons, read_first
from streaming.views.kept import keep_days
from streaming.views.kinds import OfWindows, kind_of
from streaming.views.late import late_pairs, late_rows
from streaming.views.laws import PinnedView
from streaming.views.operator import WindowedRuntime
from streaming.views.publishing import publish
from streaming.views.results import (
    aggregate,
    as_batch,
    assign,
    ends_within,
    group,
    has_days,
    last_end,
    pairs,
    possible_bounds,
    possible_pairs,
    retract_others,
)
from streaming.views.sessions import merged_sessions
from streaming.views.updates import read_updates, updated_through

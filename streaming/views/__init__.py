"""Windowed results: first results, updates, open windows, corrections, and what is current."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.views.changed_windows import changed_windows
    from streaming.views.computation import Computation, computation_of, is_closed, until
    from streaming.views.corrections import (
        correct,
        current_with_reasons,
        parted_from,
        plan,
        read_corrections,
    )
    from streaming.views.operator import OverWindowsRuntime, pinned_windows
    from streaming.views.partial_results import PartialColumns, rows_as_partial
    from streaming.views.results import (
        as_batch,
        assign,
        group,
        has_days,
        kind_of,
        late_pairs,
        late_rows,
        pairs,
        parted,
        possible_bounds,
        read_first,
    )
    from streaming.views.updates import read_updates, updated_through

make_front(__name__)

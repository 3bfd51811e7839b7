"""Two streams: pairs of rows within bounds of time, and rows that share a window."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.joins.frame import (
        current_rows,
        partners_of,
        rows_of_sides,
        standing_pairs,
        voided_rows,
        with_reasons,
    )

make_front(__name__)

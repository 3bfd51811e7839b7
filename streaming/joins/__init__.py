"""Two streams: pairs of rows within bounds of time, and rows that share a window."""

from streaming.joins.frame import current_rows, voided_rows, with_reasons
from streaming.joins.operator import JoinedRuntime
from streaming.joins.windows import TwoSidedRuntime

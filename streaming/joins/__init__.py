"""Two streams: pairs of rows within bounds of time, and rows that share a window."""

from streaming.joins.current import current_rows, voided_rows, with_reasons
from streaming.joins.operator import JoinedRuntime
from streaming.joins.windows_corrections import numbered as numbered_corrections
from streaming.joins.windows_corrections import read_corrections as read_two_sided_corrections
from streaming.joins.windows_first import read_first
from streaming.joins.windows_operator import TwoSidedRuntime

"""Two streams: pairs of rows within bounds of time, and rows that share a window."""

from streaming.joins.operator import JoinedRuntime
from streaming.joins.windows_first import read_first
from streaming.joins.windows_operator import TwoSidedRuntime

__all__ = ["JoinedRuntime", "TwoSidedRuntime", "read_first"]

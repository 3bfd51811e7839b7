"""Two streams: pairs of rows within bounds of time, and rows that share a window."""

from streaming.joins.clock import joint_watermark
from streaming.joins.frame import AT, BATCH
from streaming.joins.operator import JoinedRuntime
from streaming.joins.windows_first import read_first
from streaming.joins.windows_operator import TwoSidedRuntime
from streaming.joins.windows_position import JointPosition

__all__ = ["AT", "BATCH", "JoinedRuntime", "JointPosition", "TwoSidedRuntime", "joint_watermark", "read_first"]

"""Two streams: pairs of rows within bounds of time."""

from streaming.joins.frame import AT, BATCH
from streaming.joins.operator import JoinedRuntime

__all__ = ["AT", "BATCH", "JoinedRuntime"]

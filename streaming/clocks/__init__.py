"""Clocks: pure values that move from batch to batch."""

from streaming.clocks.clock import Ascending, BoundedOutOfOrderness, Clock, Punctuated, clock_from_json
from streaming.clocks.joint import joint_watermark
from streaming.clocks.state import ClockState, latest
from streaming.clocks.summary import BatchSummary

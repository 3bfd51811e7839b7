"""Clocks: pure values that move from batch to batch."""

from streaming.clocks.clock import (
    Ascending,
    BatchSummary,
    BoundedOutOfOrderness,
    Clock,
    ClockState,
    Punctuated,
    clock_from_json,
    joint_watermark,
    latest,
)

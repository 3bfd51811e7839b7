"""Clocks: pure values that move from batch to batch."""

from typing import TYPE_CHECKING

from streaming.base.fronts import make_front

if TYPE_CHECKING:
    from streaming.clocks.clock import (
        Ascending,
        BatchSummary,
        BoundedOutOfOrderness,
        Clock,
        ClockState,
        Derived,
        Punctuated,
        clock_from_json,
        joint_watermark,
        latest,
    )

make_front(__name__)

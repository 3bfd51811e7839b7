"""The clocks once more, over whole microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Clock(Protocol):
    """What the oracle asks of a clock; `watermark` is null before the first valid row."""

    watermark: int | None

    def advance(self, times: Sequence[int]) -> None:
        """Take in the event times of one batch's valid rows."""

    def close(self, at: int) -> None:
        """Take in the end of the input."""


class Bounded:
    """The greatest event time so far less `delay`, never back: Flink's `BoundedOutOfOrdernessWatermarks`."""

    def __init__(self, delay: int) -> None:
        self.watermark: int | None = None
        self._delay = delay

    def advance(self, times: Sequence[int]) -> None:
        """Take in the event times of one batch's valid rows."""
        if times:
            self.close(max(times) - self._delay)

    def close(self, at: int) -> None:
        """Move forward to `at`."""
        self.watermark = at if self.watermark is None else max(self.watermark, at)

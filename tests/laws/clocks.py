"""The clocks once more. Instants are whole microseconds, watermarks whole milliseconds, as in Flink and in Spark."""

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
            self._move(whole_millisecond_before(max(times) - self._delay))

    def close(self, at: int) -> None:
        """Move forward to `at`, so that what ends there is closed."""
        self._move(-whole_millisecond_before(-at))

    def _move(self, to: int) -> None:
        self.watermark = to if self.watermark is None else max(self.watermark, to)


def whole_millisecond_before(at: int) -> int:
    """The last whole millisecond not after `at`."""
    return at // 1_000 * 1_000

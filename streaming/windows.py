"""Windows as values. A window is `[start, end)`: start inclusive, end exclusive, aligned to the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.errors import DeclarationError
from streaming.intervals import MICROSECOND, interval


@dataclass(frozen=True)
class Tumbling:
    """Fixed windows of length `size`, one after the other, shifted by `offset` from the epoch.

    Semantics as Flink's `TumblingEventTimeWindows.of(size, offset)` and Spark's `window`.
    """

    size: str
    offset: str = "0 seconds"

    def __post_init__(self) -> None:
        if not interval(self.size):
            raise DeclarationError(f"a tumbling window of size {self.size!r} is empty; give it a length.")
        if interval(self.offset) >= interval(self.size):
            raise DeclarationError(
                f"offset {self.offset!r} is not smaller than the window's size {self.size!r}; use the remainder."
            )

    @property
    def span(self) -> timedelta:
        """How long after its start a window may still contain a row."""
        return interval(self.size)

    def assign(self, event_time: Column) -> Column:
        """The window of each row as a struct of `start` and `end`; Spark drops rows whose `event_time` is null."""
        return F.window(
            event_time,
            _spark(interval(self.size)),
            _spark(interval(self.size)),
            _spark(interval(self.offset)),
        )

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """How many windows of a row were closed when it came; 0 while there is no stamp."""
        size, offset = interval(self.size) // MICROSECOND, interval(self.offset) // MICROSECOND
        micros = F.unix_micros(event_time)
        end = micros - F.pmod(micros - F.lit(offset), F.lit(size)) + F.lit(size)
        return F.coalesce((end <= F.unix_micros(stamp)).cast("int"), F.lit(0))


def _spark(length: timedelta) -> str:
    return f"{length // MICROSECOND} microseconds"

"""Windows of one length, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.windows.periodic import Periodic
from streaming.windows.window import AtMostOneWindow, micros, window_of_micros


@dataclass(frozen=True)
class Tumbling(AtMostOneWindow, Periodic):
    """Fixed windows of length `size`, one after the other, shifted by `offset` from the epoch, such as `-15 minutes`.

    Semantics as Flink's `TumblingEventTimeWindows.of(size, offset)` and Spark's `window`; before the epoch the start
    is rounded down as well.
    """

    size: str
    offset: str = "0 seconds"

    @property
    def period(self) -> str:
        """The size."""
        return self.size

    def bounds(self, event_time: Column) -> Column:
        """The one window of a row."""
        start = self._start(event_time)
        return F.array(window_of_micros(start, start + micros(self.size)))

"""Windows of one length that overlap, or that leave gaps."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, interval
from streaming.windows.periodic import Periodic
from streaming.windows.window import length, micros, window_of_micros

_SEQUENCE_FROM = 8
"""From how many windows a row on they are a sequence: of an array with an expression each, a row with 60 windows takes
thirty times as long, and one with 1,440 more memory than there is."""


@dataclass(frozen=True)
class Sliding(Periodic):
    """Windows of length `size` that start every `slide`, shifted by `offset` from the epoch.

    A row is in every window that covers it: `size / slide` of them, rounded up or down; where `slide` is greater than
    `size` some rows are in none. Semantics as Flink's `SlidingEventTimeWindows.of(size, slide, offset)`.
    """

    size: str
    slide: str
    offset: str = "0 seconds"

    def __post_init__(self) -> None:
        length("a sliding window", "slide", self.slide)
        super().__post_init__()

    @property
    def period(self) -> str:
        """The slide."""
        return self.slide

    @property
    def overlap(self) -> int:  # type: ignore[override]
        """The size in slides, rounded up."""
        return -(-interval(self.size) // interval(self.slide))

    def bounds(self, event_time: Column) -> Column:
        """The windows of a row, the earliest first."""
        last = self._start(event_time)
        size, slide = interval(self.size) // MICROSECOND, interval(self.slide) // MICROSECOND
        if self.overlap >= _SEQUENCE_FROM:
            return self._sequence(event_time, last, size, slide)
        starts = [last - F.lit(back * slide) for back in reversed(range(-(-size // slide)))]
        windows = F.array(*(window_of_micros(start, start + F.lit(size)) for start in starts))
        if size % slide == 0:
            return windows
        return F.filter(windows, lambda window: F.unix_micros(window["end"]) > F.unix_micros(event_time))

    @staticmethod
    def _sequence(event_time: Column, last: Column, size: int, slide: int) -> Column:
        """The windows of a row as two sequences side by side; `last` is the start of the latest, in microseconds."""
        before = F.call_function("div", F.lit(size - 1) - (F.unix_micros(event_time) - last), F.lit(slide))
        first = last - before * F.lit(slide)
        step = F.make_dt_interval(secs=F.lit(slide / 1_000_000).cast("decimal(18,6)"))

        def instants(shift: int) -> Column:
            start, stop = F.timestamp_micros(first + F.lit(shift)), F.timestamp_micros(last + F.lit(shift))
            return F.sequence(start, stop, step)

        return F.arrays_zip(instants(0).alias("start"), instants(size).alias("end"))

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """Counted by their ends, which are a slide apart; asked for every row, and Spark interprets the search."""
        closed = self._ending_after(event_time, event_time) - self._ending_after(stamp, event_time)
        return F.when(stamp.isNotNull() & (closed > 0), closed.cast("int")).otherwise(F.lit(0))

    def has_no_window(self, event_time: Column) -> Column:
        """Between two windows, where the slide is greater than the size."""
        return self._ending_after(event_time, event_time) == 0

    def last_end(self, event_time: Column) -> Column:
        """That of the window that starts last."""
        end = F.timestamp_micros(self._start(event_time) + micros(self.size))
        return F.when(~self.has_no_window(event_time), end)

    def _ending_after(self, instant: Column, event_time: Column) -> Column:
        """The number of windows that start by `event_time` and end after the `instant`."""
        rest = self._start(event_time) + micros(self.size) - F.unix_micros(instant)
        rounded_up = rest + F.pmod(-rest, micros(self.slide))
        return F.greatest(F.call_function("div", rounded_up, micros(self.slide)), F.lit(0))

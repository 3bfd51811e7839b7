"""Windows that begin at regular intervals: one after the other, or overlapping."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from streaming.base import (
    EPOCH,
    FIRST_INSTANT,
    MICROSECOND,
    DeclarationError,
    F,
    date_literal,
    interval,
    signed_interval,
)
from streaming.windows.window import AtMostOneWindow, Closing, Micros, Window, length, micros, window_of_micros

if TYPE_CHECKING:
    from pyspark.sql import Column

_SEQUENCE_FROM = 8
"""From how many windows a row on they are a sequence: of an array with an expression each, a row with 60 windows takes
thirty times as long, and one with 1,440 more memory than there is."""


class Periodic(Window):
    """Windows of length `size` that start every `period`, shifted by `offset` from the epoch, forth or back."""

    size: str
    offset: str

    def __post_init__(self) -> None:
        length(f"a {type(self).__name__.lower()} window", "size", self.size)
        if abs(self._offset) >= interval(self.period):
            raise DeclarationError(
                f"offset {self.offset!r} is not smaller than {self.period!r}, after which windows repeat",
                "use the remainder.",
            )

    @property
    def _offset(self) -> timedelta:
        return signed_interval(self.offset)

    @property
    @abstractmethod
    def period(self) -> str:
        """From the start of one window to that of the next."""

    @property
    def reach(self) -> timedelta:
        """The size."""
        return interval(self.size)

    def rows_for_day(self, day: date) -> Column:
        """To the end of the last window that starts on the day."""
        last_instant = datetime.combine(day, time.max, UTC)
        into_last = (last_instant - EPOCH - self._offset) % interval(self.period)
        last_row = last_instant + (interval(self.size) - into_last - MICROSECOND)
        return F.col("_day").between(date_literal(day), date_literal(last_row.date()))

    def ends_between(self, after: datetime, by: datetime) -> bool:
        """True if a window ends in (after, by]."""
        return self._ended(by) > self._ended(after)

    def times_for_ends(self, after: datetime | None, by: datetime) -> tuple[datetime | None, datetime | None]:
        """From the start of the first window that ends after `after`."""
        if after is None or after - FIRST_INSTANT <= interval(self.size) + interval(self.period):
            return None, by
        first = self._ended(after) + 1
        return EPOCH + self._offset + first * interval(self.period), by

    def first_begin(self, after: datetime) -> datetime | None:
        """The start of the first window that ends after an instant; None at the beginning of time."""
        return self.times_for_ends(after, after)[0]

    def closing(self, times: Micros, stamps: Micros, since: int | None, by: int) -> Closing:
        """As a first window and the number of those that follow it."""
        size, period, offset = (
            each // MICROSECOND for each in (interval(self.size), interval(self.period), self._offset)
        )

        def first_open(instants: Any) -> Any:
            return (instants - offset - size) // period + 1

        first = np.maximum(first_open(times), first_open(stamps))
        if since is not None:
            first = np.maximum(first, first_open(since))
        after_last = np.minimum((times - offset) // period + 1, first_open(by))
        return Closing(offset + first * period, np.maximum(after_last - first, 0), period, size)

    def pane(self, event_time: Column) -> Column:
        """The start of the longest stretch that begins and ends with windows and has the row in it."""
        length = gcd(interval(self.size) // MICROSECOND, interval(self.period) // MICROSECOND)
        instant = F.unix_micros(event_time)
        return F.timestamp_micros(instant - F.pmod(instant - F.lit(self._offset // MICROSECOND), F.lit(length)))

    def _ended(self, instant: datetime) -> int:
        """The number of the last window that has ended by then, counted from the one that begins at the offset."""
        return (instant - EPOCH - self._offset - interval(self.size)) // interval(self.period)

    def _start(self, event_time: Column) -> Column:
        """In microseconds, of the last window that starts by then."""
        instant = F.unix_micros(event_time)
        return instant - F.pmod(instant - F.lit(self._offset // MICROSECOND), micros(self.period))


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

    def has_no_window(self, event_time: Column) -> Column:
        """Never."""
        return F.lit(False)


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

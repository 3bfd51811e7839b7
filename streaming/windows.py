"""Windows as values. A window is `[start, end)`: start inclusive, end exclusive.

A window kind is one pure function, `bounds`: from a row's event time to the bounds of all windows that hold it. The
stream, the correction and the audit all call it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.errors import DeclarationError
from streaming.intervals import EPOCH, MICROSECOND, interval

_DAY = timedelta(days=1)


class Window(ABC):
    """A kind of window."""

    merging: bool = False
    """Whether windows of one key that overlap or touch become one, so that bounds are known only in the end."""

    expressions: tuple[str, ...] = ()
    """The SQL in the declaration, over the stream's columns."""

    @property
    @abstractmethod
    def longest(self) -> timedelta | None:
        """How long after a row its own window may end; None where nobody knows."""

    @abstractmethod
    def bounds(self, event_time: Column) -> Column:
        """All windows of a row: an array of structs of `start` and `end`, empty where there is none."""

    def near(self, day: date) -> Column:
        """Condition on `_day` that holds for every row of any window that starts on `day`."""
        return self._near(day, timedelta(), self.longest)

    def known_to_end(self, after: datetime, by: datetime) -> bool:
        """Whether windows end later than `after` and not later than `by`; false where only the rows tell."""
        return False

    def late(self, window: Column, stamp: Column) -> Column:
        """Whether a pair of row and `window` came after the window was closed; false while there is no stamp."""
        return F.coalesce(window.getField("end") <= stamp, F.lit(False))

    def on_time(self, window: Column, clock: Column) -> Column:
        """The opposite of `late` in the one form that Spark keeps above the watermark (fact S4)."""
        return window.getField("end") > clock

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """How many windows of a row were closed when it came."""
        return F.size(F.filter(self.bounds(event_time), lambda window: self.late(window, stamp)))

    def in_none(self, event_time: Column) -> Column:
        """Whether a row is in no window."""
        return F.size(self.bounds(event_time)) == 0

    @staticmethod
    def _near(day: date, before: timedelta, after: timedelta | None) -> Column:
        # A date less an interval below a day would be the same date.
        condition = F.col("_day") >= F.lit((datetime.combine(day, time.min) - before).date())
        # A row's day is that of its own time: one day more than the length covers any time of day.
        return condition if after is None else condition & (F.col("_day") <= F.lit(day + after + _DAY))


class _Periodic(Window):
    """Windows of length `size` that start every `period`, shifted by `offset` from the epoch."""

    size: str
    offset: str

    def __post_init__(self) -> None:
        if not interval(self.size) or not interval(self.period):
            raise DeclarationError(
                f"a {type(self).__name__.lower()} window of size {self.size!r} every {self.period!r} is empty; give it "
                "a length."
            )
        if interval(self.offset) >= interval(self.period):
            raise DeclarationError(
                f"offset {self.offset!r} is not smaller than {self.period!r}, after which windows repeat; use the "
                "remainder."
            )

    @property
    @abstractmethod
    def period(self) -> str:
        """From the start of one window to that of the next."""

    @property
    def longest(self) -> timedelta:
        """The size."""
        return interval(self.size)

    def near(self, day: date) -> Column:
        """To the end of the last window that starts on the day."""
        last_instant = datetime.combine(day, time.max, UTC)
        into_last = (last_instant - EPOCH - interval(self.offset)) % interval(self.period)
        last_row = last_instant + (interval(self.size) - into_last - MICROSECOND)
        return F.col("_day").between(F.lit(day), F.lit(last_row.date()))

    def known_to_end(self, after: datetime, by: datetime) -> bool:
        """Whether one does."""
        return self._ended(by) > self._ended(after)

    def _ended(self, instant: datetime) -> int:
        """The number of the last window that has ended by then, counted from the one that begins at the offset."""
        return (instant - EPOCH - interval(self.offset) - interval(self.size)) // interval(self.period)

    def _start(self, event_time: Column) -> Column:
        """In microseconds, of the last window that starts by then."""
        micros = F.unix_micros(event_time)
        return micros - F.pmod(micros - _micros(self.offset), _micros(self.period))


@dataclass(frozen=True)
class Tumbling(_Periodic):
    """Fixed windows of length `size`, one after the other, shifted by `offset` from the epoch.

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
        return F.array(_window(start, start + _micros(self.size)))

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """One or none; asked for every row, and Spark interprets the search in an array."""
        return self.late(self.bounds(event_time)[0], stamp).cast("int")

    def in_none(self, event_time: Column) -> Column:
        """Never."""
        return F.lit(False)


@dataclass(frozen=True)
class Sliding(_Periodic):
    """Windows of length `size` that start every `slide`, shifted by `offset` from the epoch.

    A row is in every window that covers it: `size / slide` of them, rounded up or down; where `slide` is greater than
    `size` some rows are in none. Semantics as Flink's `SlidingEventTimeWindows.of(size, slide, offset)`.
    """

    size: str
    slide: str
    offset: str = "0 seconds"

    @property
    def period(self) -> str:
        """The slide."""
        return self.slide

    def bounds(self, event_time: Column) -> Column:
        """The windows of a row, the earliest first."""
        last = self._start(event_time)
        size, slide = interval(self.size) // MICROSECOND, interval(self.slide) // MICROSECOND
        starts = [last - F.lit(back * slide) for back in reversed(range(-(-size // slide)))]
        windows = F.array(*(_window(start, start + F.lit(size)) for start in starts))
        return F.filter(windows, lambda window: F.unix_micros(window["end"]) > F.unix_micros(event_time))


def _micros(length: str) -> Column:
    return F.lit(interval(length) // MICROSECOND)


def _window(start: Column, end: Column) -> Column:
    return F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end"))

"""The contract of a window kind. A window is `[start, end)`: start inclusive, end exclusive.

A window kind is one pure function, `bounds`: from a row's event time to the bounds of all windows that hold it. The
stream, the correction and the audit all call it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import date, datetime, time, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, interval

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


def _micros(length: str) -> Column:
    return F.lit(interval(length) // MICROSECOND)


def _window(start: Column, end: Column) -> Column:
    return F.struct(F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end"))

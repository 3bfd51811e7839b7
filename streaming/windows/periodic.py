"""Windows of one length that repeat: what tumbling and sliding ones have in common."""

from __future__ import annotations

from abc import abstractmethod
from datetime import UTC, date, datetime, time, timedelta
from math import gcd

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import EPOCH, FIRST_INSTANT, MICROSECOND, DeclarationError, date_literal, interval, signed_interval
from streaming.windows.window import Window, length, micros


class Periodic(Window):
    """Windows of length `size` that start every `period`, shifted by `offset` from the epoch, forth or back."""

    size: str
    offset: str

    def __post_init__(self) -> None:
        length(f"a {type(self).__name__.lower()} window", "size", self.size)
        if abs(self._offset) >= interval(self.period):
            raise DeclarationError(
                f"offset {self.offset!r} is not smaller than {self.period!r}, after which windows repeat; use the "
                "remainder."
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

"""The contract of a window kind. A window is `[start, end)`: start inclusive, end exclusive.

A window kind is one pure function, `bounds`: from a row's event time to the bounds of all windows that hold it. The
stream, the correction and the audit all call it. Windows that begin at regular intervals, `Tumbling` and `Sliding`, are
here as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from math import gcd
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from streaming.base import (
    EPOCH,
    FIRST_INSTANT,
    MICROSECOND,
    DeclarationError,
    F,
    date_literal,
    earlier,
    interval,
    signed_interval,
    to_micros,
)

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_REACH = timedelta(days=99 * 365)
"""The furthest a window may reach from its row, so that its bounds are instants that Python and Delta know, too."""

_DAY = timedelta(days=1)
_SEQUENCE_FROM = 8
"""From how many windows a row on they are a sequence: of an array with an expression each, a row with 60 windows takes
thirty times as long, and one with 1,440 more memory than there is."""
Micros = np.ndarray[Any, np.dtype[np.int64]]
"""Instants, or lengths of time, in microseconds."""


class Closing(NamedTuple):
    """Some windows of each of some rows, a `period` after one another and all of one `size`, in microseconds.

    `begins` is the start of the first one of a row, which has no meaning where their number `counts` is zero.
    """

    begins: Micros
    counts: Micros
    period: int
    size: int


class Window(ABC):
    """A kind of window: a frozen value with its lengths as text.

    To add a kind, implement `reach` and `bounds`, override what differs, and let `tests/streaming/windows/contract.py`
    run over it.
    """

    merging: bool = False
    """True if windows of one key that overlap or touch become one, so that bounds are known only in the end."""

    decided_by: Literal["start", "end"] = "end"
    """The bound of a row's own window that a stamp is held against to tell whether the pair is late."""

    grace: timedelta = timedelta()
    """The time after its end in which a window may still grow; at a watermark of end + grace it is closed."""

    rows_before: timedelta = timedelta()
    """The time before its start in which a window may have rows, or rows that tell whether it starts there."""

    overlap: int = 1
    """In how many windows a row is at most, where that is known."""

    expressions: tuple[str, ...] = ()
    """The SQL in the declaration, over the stream's columns."""

    @property
    def fingerprint(self) -> str:
        """The kind and its values: the same text for declarations that mean the same windows."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={_meaning(value)}' for name, value in values.items())})"

    @property
    @abstractmethod
    def reach(self) -> timedelta | None:
        """The longest time after a row at which its own window may end; None where nobody knows."""

    @abstractmethod
    def bounds(self, event_time: Column) -> Column:
        """All windows of a row: an array of structs of `start` and `end`, empty where there is none."""

    def rows_for_day(self, day: date) -> Column:
        """Condition on `_day` that holds for every row of any window that starts on `day`."""
        return rows_around(day, timedelta(), self.reach)

    def may_start_on(self, day: date, event_time: Column) -> Column:
        """True where a row near `day`, by its time alone, may be in a window that starts on `day`.

        Where no SQL says the windows and they do not merge, true only where it is.
        """
        if not self.merging and not self.expressions:
            return F.exists(self.bounds(event_time), lambda window: F.to_date(window["start"]) == date_literal(day))
        micros = F.unix_micros(event_time)
        since = to_micros(datetime.combine(day, time.min, UTC))
        condition = micros >= F.lit(since - self.rows_before // MICROSECOND) if self.reach is not None else F.lit(True)
        if self.merging or self.reach is None:
            return condition
        return condition & (micros < F.lit(since + (_DAY + self.reach) // MICROSECOND))

    def needed_since(self, since: date) -> date | None:
        """The first day of rows that make up the days with windows which rows from the day `since` on may be in.

        A window is counted to the day on which it starts. None where the data tell (sessions), or nobody knows.
        """
        if self.merging or self.reach is None:
            return None
        # A window that is still open may have begun before its rows, and so have others of the day on which it began.
        return since - whole_days(self.reach) - 2 * whole_days(self.rows_before)

    def whole_since(self, dropped: date) -> date:
        """The first day of which all windows have all their rows, where those of the days before `dropped` are gone."""
        return dropped + whole_days(self.rows_before)

    def ends_between(self, after: datetime, by: datetime) -> bool:
        """True if a window may end in (after, by]: always for kinds whose ends follow from data (sessions, custom)."""
        return True

    def times_for_ends(self, after: datetime | None, by: datetime) -> tuple[datetime | None, datetime | None]:
        """Bounds [since, before) of the event times of all rows in windows that end in (after, by]; null for no bound.

        `after` null: in windows that end by then, however early.
        """
        return earlier(after, self.reach), by

    def pane(self, event_time: Column) -> Column | None:
        """An instant that is in the same windows as the row, and the same for as many rows as can be.

        None for kinds of which that is not known.
        """
        return None

    def late(self, window: Column, stamp: Column) -> Column:
        """True where a pair of row and `window` came after it could count; false while there is no stamp."""
        return F.coalesce(window.getField(self.decided_by) <= _before(stamp, self.grace), F.lit(False))

    def closed_by(self, watermark: datetime) -> datetime:
        """The latest end of a window that is closed at this `watermark`."""
        return watermark - self.grace

    def first_begin(self, after: datetime) -> datetime | None:
        """An instant before which no window begins that ends after another one; None where nobody knows."""
        if self.merging or self.reach is None:
            return None
        return earlier(after, self.reach + self.rows_before)

    def closing(self, times: Micros, stamps: Micros, since: int | None, by: int) -> Closing | None:
        """The windows of rows that end in (since, by] and were open when the row came; None where only Spark knows.

        All are instants in microseconds, `since` null for windows that end by then, however early. A row without a
        stamp has one before all windows.
        """
        return None

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """The number of windows of a row that were closed when it came."""
        return F.size(F.filter(self.bounds(event_time), lambda window: self.late(window, stamp)))

    def has_no_window(self, event_time: Column) -> Column:
        """True where a row is in no window."""
        return F.size(self.bounds(event_time)) == 0

    def last_end(self, event_time: Column) -> Column:
        """The latest end of the windows of a row; null where it is in none."""
        return F.array_max(self.bounds(event_time)["end"])


class AtMostOneWindow(Window):
    """A kind in which no row is in more than one window.

    What is asked for every row needs no search in an array, which Spark interprets.
    """

    def late_windows(self, event_time: Column, stamp: Column) -> Column:
        """One or none."""
        return self.late(F.get(self.bounds(event_time), F.lit(0)), stamp).cast("int")

    def has_no_window(self, event_time: Column) -> Column:
        """True where the row is in no window."""
        return F.get(self.bounds(event_time), F.lit(0)).isNull()

    def last_end(self, event_time: Column) -> Column:
        """That of the one window."""
        return F.get(self.bounds(event_time), F.lit(0))["end"]


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


def whole_days(length: timedelta) -> timedelta:
    """The length, rounded up to days."""
    return -(-length // _DAY) * _DAY


def rows_around(day: date, before: timedelta, after: timedelta | None) -> Column:
    """Condition on `_day`: from `before` the day's first instant to `after` its last one, or without an end."""
    # A date less an interval below a day would be the same date.
    condition = F.col("_day") >= date_literal((datetime.combine(day, time.min) - before).date())
    # A row's day is that of its own time: one day more than the length covers any time of day.
    return condition if after is None else condition & (F.col("_day") <= date_literal(day + after + _DAY))


def length(kind: str, name: str, text: str) -> timedelta:
    """The interval `text`, which a window of this `kind` has for `name`.

    Raises:
        DeclarationError: it is empty, or longer than a window can be.
    """
    parsed = interval(text)
    if not timedelta() < parsed <= MOST_REACH:
        raise DeclarationError(
            f"{name}={text!r} of {kind} is {'empty' if not parsed else 'too long'}",
            f"give it a length, such as '15 minutes', of at most {MOST_REACH.days} days.",
            field=name,
            value=text,
        )
    return parsed


def micros(text: str) -> Column:
    """The length of an interval in microseconds."""
    return F.lit(interval(text) // MICROSECOND)


def window_of_micros(start: Column, end: Column) -> Column:
    """The window between two instants in microseconds since the epoch."""
    return window_of(F.timestamp_micros(start), F.timestamp_micros(end))


def window_of(start: Column, end: Column) -> Column:
    """The window between two timestamps."""
    return F.struct(start.alias("start"), end.alias("end"))


def _meaning(value: object) -> str:
    """`60 minutes` and `1 hour` are the same."""
    try:
        meant = signed_interval(str(value))
    except DeclarationError:
        return str(value)
    return str(meant) if meant >= timedelta() else f"-{-meant}"


def _before(instant: Column, by: timedelta) -> Column:
    return F.timestamp_micros(F.unix_micros(instant) - F.lit(by // MICROSECOND)) if by else instant

"""Session windows: rows of one key that follow each other closely, whatever clock they keep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import MICROSECOND, DeclarationError, interval
from streaming.windows.window import Window


@dataclass(frozen=True)
class SessionWindow(Window):
    """Every row opens `[t, t + gap)`; what overlaps or touches is one session. Rows exactly one gap apart are one.

    `gap` is a length, such as `15 minutes`, or, with `seconds_of`, left out: then each row brings its own, as SQL for a
    number of seconds; where that is null or not positive, the row is in no session. Semantics as Flink's
    `EventTimeSessionWindows.withGap` and `withDynamicGap`, but for lateness.

    **Lateness.** A session's end is not known when a row comes, so `window_end <= stamp` cannot decide: a row just
    behind the stamp could touch a session that is closed already, and whether it still met it would depend on how the
    log was cut into batches. A pair is therefore late if its row is not ahead of the stamp: `event time <= stamp`.
    """

    gap: str | None = None
    seconds_of: str | None = None

    merging = True

    def __post_init__(self) -> None:
        if (self.gap is None) == (self.seconds_of is None):
            raise DeclarationError(
                f"Session(gap={self.gap!r}, seconds_of={self.seconds_of!r}): give exactly one of the two, such as "
                "gap='15 minutes'."
            )
        if self.gap is not None and not interval(self.gap):
            raise DeclarationError(f"a session with a gap of {self.gap!r} never holds two rows; give it a length.")

    @property
    def expressions(self) -> tuple[str, ...]:  # type: ignore[override]
        """The gap, where it is SQL."""
        return () if self.seconds_of is None else (self.seconds_of,)

    @property
    def longest(self) -> timedelta | None:
        """The gap; None where each row brings its own."""
        return None if self.gap is None else interval(self.gap)

    def bounds(self, event_time: Column) -> Column:
        """The row's own `[t, t + gap)`, before it is merged."""
        micros = F.unix_micros(event_time)
        if self.gap is not None:
            length = F.lit(interval(self.gap) // MICROSECOND)
        else:
            length = F.expr(f"cast(({self.seconds_of}) * 1000000 as bigint)")
        own = F.array(F.struct(event_time.alias("start"), F.timestamp_micros(micros + length).alias("end")))
        return own if self.gap is not None else F.filter(own, lambda window: window["end"] > window["start"])

    def near(self, day: date) -> Column:
        """A session of the day may last for ever; one that began before is recognized by the row before midnight."""
        return F.col("_day").isNotNull() if self.longest is None else self._near(day, self.longest, None)

    def late(self, window: Column, stamp: Column) -> Column:
        """Whether the row is not ahead of the stamp; false while there is no stamp."""
        return F.coalesce(window.getField("start") <= stamp, F.lit(False))

    def on_time(self, window: Column, clock: Column) -> Column:
        """Whether the row is ahead of the stamp."""
        return window.getField("start") > clock

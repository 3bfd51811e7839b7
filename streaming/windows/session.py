"""Session windows: rows of one key that follow each other closely, whatever clock they keep."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from streaming.base import MICROSECOND, DeclarationError, F, interval
from streaming.windows.window import MOST_REACH, AtMostOneWindow, length, micros, rows_around, window_of

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class SessionWindow(AtMostOneWindow):
    """Every row opens `[t, t + gap)`; what overlaps or touches is one session. Rows exactly one gap apart are
    in one session.

    `gap` is a length, such as `15 minutes`, or, with `seconds_of`, left out: then each row brings its own, as SQL for a
    number of seconds; where that is null, not positive or longer than 99 years, the row is in no session. Semantics as
    Flink's `EventTimeSessionWindows.withGap` and `withDynamicGap`, but for lateness.

    **Lateness.** A session's end is not known when a row comes, so `window_end <= stamp` cannot decide whether the row
    is late. Its own time does: a pair is late iff `event time < stamp`. A session is closed once the watermark is past
    its end, not when it reaches it. So a row that is not late, `event time >= stamp > end`, never touches a session
    that is closed, and however the log is cut into batches, the same rows meet.

    **Allowed lateness** (`late="update"`) goes by the session, as in Flink: a late row is in time for an update iff the
    session that it is part of, of all rows up to its batch, ends less than the allowed lateness before the stamp. What
    a late row made of sessions is published as soon as the session is closed; one that it joined to a session still
    open waits for that one, and readers see what was published until then. Where several sessions have become one, its
    update stands for all of them.
    """

    gap: str | None = None
    seconds_of: str | None = None

    merging = True
    decided_by = "start"
    grace = MICROSECOND

    def __post_init__(self) -> None:
        if (self.gap is None) == (self.seconds_of is None):
            raise DeclarationError(
                f"SessionWindow(gap={self.gap!r}, seconds_of={self.seconds_of!r}): give exactly one of the two, such "
                "as gap='15 minutes'.",
                field="gap",
                value=self.gap,
            )
        if self.gap is not None:
            length("a session", "gap", self.gap)

    @property
    def expressions(self) -> tuple[str, ...]:  # type: ignore[override]
        """The gap, where it is SQL."""
        return () if self.seconds_of is None else (self.seconds_of,)

    @property
    def reach(self) -> timedelta | None:
        """The gap; None where each row brings its own."""
        return None if self.gap is None else interval(self.gap)

    @property
    def rows_before(self) -> timedelta:  # type: ignore[override]
        """The gap, as a row within it before the first one belongs to the session, too; 0 for gaps of the rows' own."""
        return timedelta() if self.reach is None else self.reach

    def bounds(self, event_time: Column) -> Column:
        """The row's own `[t, t + gap)`, before it is merged."""
        if self.gap is not None:
            end = F.timestamp_micros(F.unix_micros(event_time) + micros(self.gap))
            return F.array(window_of(event_time, end))
        most = int(MOST_REACH.total_seconds())
        # Bounded before it is multiplied: a number of seconds that no instant can carry must not fail the batch.
        given = F.expr(f"({self.seconds_of}\n)")
        seconds = F.when((given > 0) & (given <= most), given)
        end = F.timestamp_micros(F.unix_micros(event_time) + (seconds * F.lit(1_000_000).cast("bigint")).cast("bigint"))
        own = F.array(window_of(event_time, end))
        return F.filter(own, lambda window: window["end"] > window["start"])

    def has_no_window(self, event_time: Column) -> Column:
        """True where the row's own gap gives it no session."""
        return super().has_no_window(event_time) if self.gap is None else F.lit(False)

    def rows_for_day(self, day: date) -> Column:
        """A session of the day may last for ever; one that began before is recognized by the row before midnight."""
        return F.col("_day").isNotNull() if self.reach is None else rows_around(day, self.reach, None)

"""Which rows have waited for a partner until none can come in time: decided by the joint clock, pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from streaming.base import FIRST_INSTANT, MICROSECOND, literal
from streaming.declare import LEFT_AT, RIGHT_AT, Joined
from streaming.joins.frame import Side, reach
from streaming.operators import Progress
from streaming.tables import TimeRange, merged, shifted

_AT = {"left": LEFT_AT, "right": RIGHT_AT}


@dataclass(frozen=True)
class Due:
    """The event times of rows of one side that are due in a step: in [since, before), and of new rows those before.

    `since` is null where nothing was due yet; without `before` nothing is.
    """

    since: datetime | None
    before: datetime | None
    new: tuple[TimeRange, ...] = ()

    @property
    def ripe(self) -> list[TimeRange]:
        """The times of rows, old or new, that the clock has passed in this step."""
        start = FIRST_INSTANT if self.since is None else self.since
        return [(start, self.before - MICROSECOND)] if self.before is not None and start < self.before else []

    @property
    def late(self) -> list[TimeRange]:
        """The times of new rows that it had passed before."""
        if self.since is None:
            return []
        last = self.since - MICROSECOND
        return [(start, min(end, last)) for start, end in self.new if start <= last]

    @property
    def ranges(self) -> list[TimeRange]:
        """Both."""
        return merged([*self.ripe, *self.late])

    def is_ripe(self, side: Side) -> Column:
        """True where a row of the side is due because the clock has moved."""
        at = F.col(_AT[side])
        passed = at < literal(self.before)
        return passed if self.since is None else passed & (at >= literal(self.since))

    def is_late(self, side: Side) -> Column:
        """True where a new row of the side was due before it came."""
        return F.col(_AT[side]) < literal(self.since)


def due(joined: Joined, side: Side, before: Progress, after: Progress, new: Sequence[TimeRange]) -> Due:
    """The rows that are due on the way from `before` to `after`; `new` are the ranges of the new rows' event times."""
    passed = (reached.watermark for reached in (before, after))
    since, until = (None if mark is None else shifted(mark, -reach(joined, side)) for mark in passed)
    return Due(since, until, tuple(new))


def is_due(joined: Joined, side: Side, watermark: Column) -> Column:
    """True where a row of the side is due at a joint watermark."""
    return F.unix_micros(_AT[side]) + reach(joined, side) // MICROSECOND < F.unix_micros(watermark)

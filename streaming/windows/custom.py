"""Windows by an expression of one's own."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING

from streaming.base import LAST_MILLISECOND, MICROSECOND, F, interval
from streaming.windows.window import Window, length, rows_around

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class Custom(Window):
    """Windows that SQL assigns: `windows` is an array of structs of two timestamps, start and end.

    A row may be in none, one or many; such a window need not hold the row's own time. `within` bounds how far start
    and end may lie from the event time; a window that reaches further, or ends before it starts, is not assigned. It is
    what keeps a correction from reading the whole log. Semantics as Flink's `WindowAssigner`.
    """

    windows: str
    within: str

    def __post_init__(self) -> None:
        length("a custom window", "within", self.within)

    @property
    def expressions(self) -> tuple[str, ...]:  # type: ignore[override]
        """The assigner."""
        return (self.windows,)

    @property
    def reach(self) -> timedelta:
        """The furthest that a window may reach from a row."""
        return interval(self.within)

    @property
    def rows_before(self) -> timedelta:  # type: ignore[override]
        """A window may begin after its rows."""
        return self.reach

    def bounds(self, event_time: Column) -> Column:
        """The assigned windows that are windows."""
        micros, reach = F.unix_micros(event_time), F.lit(interval(self.within) // MICROSECOND)
        assigned = F.expr(
            f"coalesce(cast(({self.windows}\n) as array<struct<start: timestamp, end: timestamp>>), array())"
        )
        return F.array_distinct(
            F.filter(
                assigned,
                lambda window: (
                    (window["start"] < window["end"])
                    & (F.unix_micros(window["start"]) >= micros - reach)
                    & (F.unix_micros(window["end"]) <= micros + reach)
                ),
            )
        )

    def times_for_ends(self, after: datetime | None, by: datetime) -> tuple[datetime | None, datetime | None]:
        """Rows on both sides of the window's end."""
        since, _ = super().times_for_ends(after, by)
        return since, by + self.reach if LAST_MILLISECOND - by > self.reach else None

    def rows_for_day(self, day: date) -> Column:
        """Rows on both sides of the window's start."""
        return rows_around(day, self.reach, self.reach)

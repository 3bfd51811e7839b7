"""Days as people count them: from midnight to midnight of a time zone, 23 to 25 hours long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streaming.base import DeclarationError, F
from streaming.windows.window import AtMostOneWindow, window_of

if TYPE_CHECKING:
    from pyspark.sql import Column


@dataclass(frozen=True)
class LocalDays(AtMostOneWindow):
    """One window per day of the time `zone`, such as `America/New_York`; bounds are instants.

    A day begins at the first instant that carries its date, and lasts until the next one begins. It has 23 or 25 hours
    where clocks change, by the rules of the JVM's time zone database.
    """

    zone: str

    def __post_init__(self) -> None:
        try:
            ZoneInfo(self.zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise DeclarationError(
                f"{self.zone!r} is no time zone",
                "write a name of the IANA database, such as 'Europe/Paris'.",
                value=self.zone,
            ) from error

    @property
    def reach(self) -> timedelta:
        """The longest day, with room for a zone that moves across the date line."""
        return timedelta(days=2)

    def bounds(self, event_time: Column) -> Column:
        """The one day of a row."""
        midnight = F.date_trunc("day", F.from_utc_timestamp(event_time, self.zone))
        first, second, third = (
            F.to_utc_timestamp(midnight + F.expr(f"interval {days} day"), self.zone) for days in range(3)
        )
        # Clocks turned back over midnight show the old date again, when the new day has begun already.
        return F.array(F.when(event_time < second, window_of(first, second)).otherwise(window_of(second, third)))

    def pane(self, event_time: Column) -> Column:
        """The start of the day."""
        return self.bounds(event_time)[0]["start"]

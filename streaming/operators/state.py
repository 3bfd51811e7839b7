"""State in tables: a step a second leaves tens of thousands of versions a day behind."""

from __future__ import annotations

from datetime import datetime, timedelta

from streaming.base import utc_now
from streaming.tables import clean_up, delta

_KEPT_FOR = timedelta(hours=1)
_CLEANED_EVERY = timedelta(minutes=10)


def clean_state(uri: str, now: datetime) -> None:
    """Remove the versions of a table of state that are older than an hour, with their files."""
    clean_up(delta.opened(uri), now - _KEPT_FOR)
    # An open table remembers the entries that it was read from.
    table, hours = delta.opened(uri), _KEPT_FOR // timedelta(hours=1)
    if table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True):
        table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


class StateCleaner:
    """Cleans a table of state now and then, for whoever steps its operator."""

    def __init__(self) -> None:
        self._cleaned_at = utc_now()

    def after_step(self, uri: str, now: datetime) -> None:
        """Clean the table at `uri`, if it is there and was not cleaned for ten minutes."""
        if now - self._cleaned_at >= _CLEANED_EVERY:
            self._cleaned_at = now
            if delta.exists(uri):
                clean_state(uri, now)

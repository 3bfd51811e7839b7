"""How a backlog shrinks, and when nothing will wait any more."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True)
class CatchUp:
    """How a backlog shrinks: `most` items waited at `since`, when it last grew, and `items` wait `at` now."""

    since: datetime
    most: int
    at: datetime
    items: int

    def counted(self, at: datetime, items: int) -> CatchUp:
        """After it was counted again; a backlog that grows has begun to shrink at the earliest then."""
        return CatchUp(at, items, at, items) if items > self.items else replace(self, at=at, items=items)

    @property
    def seconds(self) -> float | None:
        """Until nothing waits, if it goes on to shrink as it has since; None where no end is in sight."""
        if self.items == 0:
            return 0.0
        taken = self.most - self.items
        return self.items * (self.at - self.since).total_seconds() / taken if taken else None

"""The report on a feed of flights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from streaming.feeds.damage import Damage


@dataclass(frozen=True)
class FeedReport:
    """The counts of one feed: of the flights in the range, and of the lines and files that were new.

    ``damaged`` counts the damaged lines of the range by kind, those delivered by an earlier feed included.
    """

    landing: Path
    flights: int
    cancelled: int
    lines_written: int
    files_written: int
    files_left_alone: int
    damaged: Mapping[Damage, int]

    def __str__(self) -> str:
        share = sum(self.damaged.values()) / self.flights
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.damaged.items()) or "none"
        return (
            f"{self.flights:,} flights ({self.cancelled:,} cancelled): {self.lines_written:,} lines in "
            f"{self.files_written:,} new files in {self.landing}, {self.files_left_alone:,} files already "
            f"there; damaged on purpose: {sum(self.damaged.values()):,} lines, {share:.2%} ({kinds})"
        )

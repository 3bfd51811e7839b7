"""The memory that a clock has of all batches so far, as a value that is stored in the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from streaming.base import FIRST_INSTANT, LAST_MILLISECOND, MILLISECOND, optional_instant, optional_micros
from streaming.clocks.summary import instants_of_each, micros_of_each


@dataclass(frozen=True)
class ClockState:
    """Everything a clock remembers of the batches so far.

    `greatest`: per source partition with a valid row so far, the greatest event time that moves the clock, null where
    there was none yet; `moved_to`: where rows and silence have moved the watermark; `closed_to`: where an end of input
    has moved it. Kept only by the clocks that need them: `last_valid_row_at`, the processing time of each partition's
    last valid row (`idle_after`), `last_row_at`, that of the last row of any kind, and `moved_to_at_last_row`, as
    `moved_to` was after the batch with that row (both `heartbeat_after`).
    """

    greatest: Mapping[str, datetime | None] = field(default_factory=dict)
    moved_to: datetime | None = None
    last_valid_row_at: Mapping[str, datetime | None] = field(default_factory=dict)
    last_row_at: datetime | None = None
    moved_to_at_last_row: datetime | None = None
    closed_to: datetime | None = None

    @property
    def watermark(self) -> datetime | None:
        """The watermark in force; null before there is one."""
        return latest(self.moved_to, self.closed_to)

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": micros_of_each(self.greatest),
            "watermark": optional_micros(self.watermark),
            "seen": micros_of_each(self.last_valid_row_at),
            "arrived": optional_micros(self.last_row_at),
            "moved_to": optional_micros(self.moved_to),
            "moved_to_at_last_row": optional_micros(self.moved_to_at_last_row),
            "closed_to": optional_micros(self.closed_to),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClockState:
        """The inverse of `to_json`; logs written before there were all of its fields are read as well."""
        greatest, last_row_at = instants_of_each(value["greatest"]), optional_instant(value.get("arrived"))
        if "moved_to" in value:
            moved_to, at_last_row = optional_instant(value["moved_to"]), optional_instant(value["moved_to_at_last_row"])
        else:
            moved_to = optional_instant(value["watermark"])
            # Heartbeats of older versions moved the watermark past all rows; to move on from there by the time since
            # the last row would count that time twice.
            at_last_row = None if last_row_at is None else _earliest(moved_to, latest(*greatest.values()))
        return cls(
            greatest,
            moved_to,
            instants_of_each(value.get("seen", {})),
            last_row_at,
            at_last_row,
            optional_instant(value.get("closed_to")),
        )

    def closed_at(self, instant: datetime) -> ClockState:
        """The state after an end of input at `instant`, or at the whole millisecond after it; never moves back.

        The last millisecond of the year 9999 stands for whatever comes after it.
        """
        end = min(instant, LAST_MILLISECOND)
        end += (FIRST_INSTANT - end) % MILLISECOND
        return self if self.watermark is not None and end <= self.watermark else replace(self, closed_to=end)


def latest(*instants: datetime | None) -> datetime | None:
    """The latest of the instants that are not null; null where all are."""
    return max((instant for instant in instants if instant is not None), default=None)


def _earliest(*instants: datetime | None) -> datetime | None:
    return min((instant for instant in instants if instant is not None), default=None)

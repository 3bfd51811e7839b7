"""What a clock is told of a batch and what it remembers, as values that are stored in the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from streaming.base import FIRST_INSTANT, MILLISECOND, from_micros, to_micros


@dataclass(frozen=True)
class BatchSummary:
    """What a clock may know of one batch; one without rows is a tick of the clock.

    `greatest`: for each source partition that brought valid rows, the greatest event time of those that move the
    clock, null where none of them does; `rows`: rows read, rejected ones too; `processed_at`: processing time.
    """

    greatest: Mapping[str, datetime | None]
    rows: int
    processed_at: datetime

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": _micros_of_each(self.greatest),
            "rows": self.rows,
            "processed_at": to_micros(self.processed_at),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BatchSummary:
        """The inverse of `to_json`."""
        return cls(_instants_of_each(value["greatest"]), value["rows"], from_micros(value["processed_at"]))


@dataclass(frozen=True)
class ClockState:
    """Everything a clock remembers of the batches so far.

    `greatest`: per source partition seen so far, the greatest event time that moves the clock, null where there was
    none yet; `watermark`: the one in force, null before the first valid row. In processing time, and kept only by the
    clocks that need it: `seen`, when each partition last brought a valid row (`idle_after`), and `arrived`, when the
    last row of any kind came (`heartbeat_after`).
    """

    greatest: Mapping[str, datetime | None] = field(default_factory=dict)
    watermark: datetime | None = None
    seen: Mapping[str, datetime | None] = field(default_factory=dict)
    arrived: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": _micros_of_each(self.greatest),
            "watermark": _micros(self.watermark),
            "seen": _micros_of_each(self.seen),
            "arrived": _micros(self.arrived),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClockState:
        """The inverse of `to_json`; logs written before there were `seen` and `arrived` are read as well."""
        return cls(
            _instants_of_each(value["greatest"]),
            _instant(value["watermark"]),
            _instants_of_each(value.get("seen", {})),
            _instant(value.get("arrived")),
        )

    def closed_at(self, instant: datetime) -> ClockState:
        """The state after an end of input at `instant`, or at the whole millisecond after it; never moves back."""
        return replace(self, watermark=latest(self.watermark, instant + (FIRST_INSTANT - instant) % MILLISECOND))


def latest(*instants: datetime | None) -> datetime | None:
    """The latest of the instants that are known; null where none is."""
    return max((instant for instant in instants if instant is not None), default=None)


def _micros(instant: datetime | None) -> int | None:
    return None if instant is None else to_micros(instant)


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else from_micros(micros)


def _micros_of_each(instants: Mapping[str, datetime | None]) -> dict[str, int | None]:
    return {partition: _micros(instant) for partition, instant in instants.items()}


def _instants_of_each(micros: Mapping[str, int | None]) -> dict[str, datetime | None]:
    return {partition: _instant(value) for partition, value in micros.items()}

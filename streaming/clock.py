"""The stream's clock: one pure step from batch to batch, stored in the commit that it stamped."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from streaming.intervals import from_micros, interval, to_micros


@dataclass(frozen=True)
class BatchSummary:
    """What a clock may know of one batch.

    `greatest`: per source partition, the greatest event time of its valid rows; `rows`: rows read;
    `processed_at`: the batch's processing time.
    """

    greatest: dict[str, datetime]
    rows: int
    processed_at: datetime

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": {partition: to_micros(instant) for partition, instant in self.greatest.items()},
            "rows": self.rows,
            "processed_at": to_micros(self.processed_at),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BatchSummary:
        """The inverse of `to_json`."""
        greatest = {partition: from_micros(micros) for partition, micros in value["greatest"].items()}
        return cls(greatest, value["rows"], from_micros(value["processed_at"]))


@dataclass(frozen=True)
class ClockState:
    """Everything a clock remembers: the greatest event time per source partition and the watermark in force.

    `watermark` is null before the first valid row.
    """

    greatest: dict[str, datetime] = field(default_factory=dict)
    watermark: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": {partition: to_micros(instant) for partition, instant in self.greatest.items()},
            "watermark": None if self.watermark is None else to_micros(self.watermark),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ClockState:
        """The inverse of `to_json`."""
        watermark = value["watermark"]
        return cls(
            {partition: from_micros(micros) for partition, micros in value["greatest"].items()},
            None if watermark is None else from_micros(watermark),
        )

    def closed_at(self, instant: datetime) -> ClockState:
        """The state after an end of input at `instant`; the watermark never moves back."""
        return ClockState(self.greatest, _later(self.watermark, instant))


@dataclass(frozen=True)
class BoundedOutOfOrderness:
    """Watermark = greatest event time seen in all batches so far, less `delay`; monotone.

    `max_ahead`: a row whose event time lies further than this after the moment it is ingested is rejected, so that
    one bad timestamp cannot close every window. Semantics: Flink's `BoundedOutOfOrdernessWatermarks`, with the
    boundary of `window_end <= watermark` (no extra millisecond).
    """

    delay: str
    max_ahead: str = "1 day"

    def __post_init__(self) -> None:
        interval(self.delay)
        interval(self.max_ahead)

    def advance(self, state: ClockState, summary: BatchSummary) -> ClockState:
        """The state after a batch with this summary; stamps the batch that comes next."""
        greatest = dict(state.greatest)
        for partition, instant in summary.greatest.items():
            greatest[partition] = max(instant, greatest.get(partition, instant))
        if not greatest:
            return state
        return ClockState(greatest, _later(state.watermark, max(greatest.values()) - interval(self.delay)))

    def watermark(self, state: ClockState) -> datetime | None:
        """The watermark in force; null before the first valid row."""
        return state.watermark


def _later(watermark: datetime | None, instant: datetime) -> datetime:
    return instant if watermark is None else max(watermark, instant)

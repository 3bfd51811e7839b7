"""The facts that a clock learns of a batch, as a value that is stored in the commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from streaming.base import from_micros, optional_instant, optional_micros, to_micros


@dataclass(frozen=True)
class BatchSummary:
    """The facts that a clock may know of one batch; one without rows is a tick of the clock.

    `greatest`: for each source partition that brought valid rows, the greatest event time of those that move the
    clock, null where none of them does; `rows`: rows read, rejected ones too; `processed_at`: processing time.
    `partitions_end`: the partitions so far bring no more rows, because another source follows.
    """

    greatest: Mapping[str, datetime | None]
    rows: int
    processed_at: datetime
    partitions_end: bool = False

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON values, instants as microseconds since the epoch."""
        return {
            "greatest": micros_of_each(self.greatest),
            "rows": self.rows,
            "processed_at": to_micros(self.processed_at),
            **({"partitions_end": True} if self.partitions_end else {}),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> BatchSummary:
        """The inverse of `to_json`."""
        return cls(
            instants_of_each(value["greatest"]),
            value["rows"],
            from_micros(value["processed_at"]),
            value.get("partitions_end", False),
        )


def micros_of_each(instants: Mapping[str, datetime | None]) -> dict[str, int | None]:
    """Microseconds since the epoch, of each source partition."""
    return {partition: optional_micros(instant) for partition, instant in instants.items()}


def instants_of_each(micros: Mapping[str, int | None]) -> dict[str, datetime | None]:
    """The inverse of `micros_of_each`."""
    return {partition: optional_instant(value) for partition, value in micros.items()}

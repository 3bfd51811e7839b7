"""The clock's history: what every commit of the log says of the watermark and of what moved it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from streaming.log.batch import Batch


@dataclass(frozen=True)
class ClockReading:
    """One batch of the log as the clock sees it.

    `cause`: rows of the source, no row at all, or rejected rows that came back; `stamp`: the watermark in force when
    the batch was read, and `after` the one that it left behind, null before the first valid row; `greatest`: the
    greatest event time of the rows that move the clock, null where there is none; `rows`: rows read, `rejected` ones
    among them; `late`: late pairs per view; `processed_at`: the batch's processing time; `unknown`: rows per field
    that nobody declared.
    """

    batch: int
    cause: Literal["source", "heartbeat", "repair"]
    stamp: datetime | None
    after: datetime | None
    greatest: datetime | None
    rows: int
    rejected: int
    late: Mapping[str, int]
    processed_at: datetime
    unknown: Mapping[str, int] = field(default_factory=dict)


def clock_history(batches: Iterable[Batch]) -> list[ClockReading]:
    """One reading per batch, oldest first."""
    return [
        ClockReading(
            batch=batch.number,
            cause=batch.cause,
            stamp=batch.state.watermark,
            after=batch.after.watermark,
            greatest=max((time for time in batch.summary.greatest.values() if time is not None), default=None),
            rows=batch.summary.rows,
            rejected=batch.rejected,
            late=batch.late or {},
            processed_at=batch.summary.processed_at,
            unknown=batch.unknown or {},
        )
        for batch in sorted(batches, key=lambda batch: batch.number)
    ]

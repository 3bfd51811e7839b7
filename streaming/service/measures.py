"""What one batch cost and brought: the unit of every rate, chart and alert."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streaming.log import Batch


@dataclass(frozen=True)
class Measure:
    """One batch of a log's query, or step of an operator, once it is committed.

    `latency`: median, 95th and 99th percentile in seconds, over the rows of a log batch, from the instant the source
    had them until they could be read in Delta. `number` is the batch's place in the log. `state_rows` and `state_bytes`
    are those of the table in which an operator keeps state, `failures` rows to which something outside gave no answer.
    What a batch or step does not have is None.
    """

    query: str
    batch: int
    started: datetime
    ended: datetime
    rows: int
    number: int | None = None
    rejected: int | None = None
    late: int | None = None
    watermark: datetime | None = None
    latency: tuple[float, float, float] | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    failures: int = 0

    @property
    def is_of_log(self) -> bool:
        """Whether the batch went into a log, not into an operator's table."""
        return self.number is not None

    @property
    def seconds(self) -> float:
        """How long the batch took."""
        return (self.ended - self.started).total_seconds()


def latency(batch: Batch, visible: datetime) -> tuple[float, float, float] | None:
    """Median, 95th and 99th percentile of the rows' way from source to Delta, in seconds."""
    if not batch.source_times:
        return None
    p50, p95, p99 = (max(0.0, (visible - time).total_seconds()) for time in batch.source_times)
    return p50, p95, p99

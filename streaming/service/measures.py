"""What one batch cost and brought: the unit of every rate, chart and alert."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Throughput:
    """Measures of the log's query put together over a while; rates are rows a second.

    `input_rate` is over the while, `processing_rate` over the time in which batches ran. Latency percentiles are
    those of the batches, weighted by their rows.
    """

    rows: int = 0
    rejected: int = 0
    late: int = 0
    batches: int = 0
    input_rate: float = 0.0
    processing_rate: float = 0.0
    batch_seconds: float | None = None
    latency: tuple[float, float, float] | None = None


def together(measures: Sequence[Measure], seconds: float) -> Throughput:
    """`measures` of one query over `seconds`."""
    busy = sum(measure.seconds for measure in measures)
    rows = sum(measure.rows for measure in measures)
    weighed = [(measure.latency, measure.rows) for measure in measures if measure.latency and measure.rows]
    return Throughput(
        rows=rows,
        rejected=sum(measure.rejected or 0 for measure in measures),
        late=sum(measure.late or 0 for measure in measures),
        batches=len(measures),
        input_rate=rows / seconds if seconds else 0.0,
        processing_rate=rows / busy if busy else 0.0,
        batch_seconds=busy / len(measures) if measures else None,
        latency=_percentiles(weighed),
    )


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


def _percentiles(
    weighed: Sequence[tuple[tuple[float, float, float], int]],
) -> tuple[float, float, float] | None:
    """Each percentile over all rows, as if the rows of a batch all had that percentile of their batch."""
    if not weighed:
        return None
    total = sum(rows for _, rows in weighed)
    percentiles = []
    for place, share in enumerate((0.5, 0.95, 0.99)):
        rows_below = 0
        for seconds, rows in sorted((entry[place], rows) for entry, rows in weighed):
            rows_below += rows
            if rows_below >= share * total:
                percentiles.append(seconds)
                break
    p50, p95, p99 = percentiles
    return p50, p95, p99

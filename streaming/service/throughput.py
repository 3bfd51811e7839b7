"""Measures of one query put together: how much came in over a while, and how fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from streaming.service.progress import Measure


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

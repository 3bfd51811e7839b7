"""What Spark says of a running query."""

from __future__ import annotations

from pyspark.sql.streaming.query import StreamingQuery


def native_drops(query: StreamingQuery) -> int:
    """Groups that Spark itself dropped as late in the batches it remembers; the stamped clock keeps this at 0."""
    return sum(
        operator.numRowsDroppedByWatermark or 0
        for progress in query.recentProgress
        for operator in progress.stateOperators
    )

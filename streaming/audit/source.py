"""What the source of a stream says against its log."""

from __future__ import annotations

from pyspark.sql import SparkSession

from streaming.declare import Stream
from streaming.lake import Lake
from streaming.operators import Finding, LogAtVersion

_NAMED = 5


def source_unchanged(spark: SparkSession, lake: Lake, stream: Stream, log: LogAtVersion) -> Finding:
    """Whether the source still holds what the rows of the log were made from; what does not is named."""
    if log.dropped is not None and any(part.counts_rows for part in stream.source.parts):
        reason = f"not compared: the source counts rows, and those of days before {log.dropped} are gone"
        return Finding("conservation", stream.name, 0, 0, reason)
    comparison = stream.source.compare(spark, lake, log.rows.select("_origin"))
    texts = [change.text for change in comparison.changed]
    more = [f"... and {len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    compared = f"{comparison.unit} ingested: not changed since"
    return Finding(
        "conservation", stream.name, comparison.ingested, len(texts), compared, "\n".join(texts[:_NAMED] + more)
    )

"""What the source of a stream says against its log."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from streaming.declare import Stream
from streaming.lake import Lake
from streaming.operators import Finding

_NAMED = 5


def source_unchanged(spark: SparkSession, lake: Lake, stream: Stream, rows: DataFrame) -> Finding:
    """Whether the source still holds what the `rows` of the log were made from; what does not is named."""
    comparison = stream.source.compare(spark, lake, rows.select("_origin"))
    texts = [change.text for change in comparison.changed]
    more = [f"... and {len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
    compared = f"{comparison.unit} ingested: not changed since"
    return Finding(
        "conservation", stream.name, comparison.ingested, len(texts), compared, "\n".join(texts[:_NAMED] + more)
    )

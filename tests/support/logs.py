"""A log made by hand: rows as they would lie in the table, without a stream that wrote them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from streaming.declare.stream import Stream

_LOG = "_rejected array<string>, _origin struct<position: bigint>, _batch bigint, _watermark timestamp, _day date"


def static_log(spark: SparkSession, stream: Stream, types: str, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Valid rows of `stream` in the order in which they came, all of batch 0 and without a stamp unless they say so.

    `types` declares the stream's columns as Spark DDL; a column that a row does not name is null.
    """
    names = stream.columns
    data = []
    for position, row in enumerate(rows):
        at: datetime = row[stream.event_time]
        origin = {"position": row.get("position", position)}
        values = (row.get(name) for name in names)
        data.append((*values, None, origin, row.get("_batch", 0), row.get("_watermark"), at.astimezone(UTC).date()))
    return spark.createDataFrame(data, f"{types}, {_LOG}")

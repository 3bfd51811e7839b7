"""The commit of first results: rows of the windows that a step has closed, and how far the operator is by then."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType, TimestampType

from streaming.base import WRITTEN_AT, constant
from streaming.declare import Operator
from streaming.lake import Lake
from streaming.operators import create_table
from streaming.tables import delta


def publish(
    lake: Lake,
    operator: Operator,
    results: DataFrame | None,
    columns: StructType,
    now: datetime,
    *,
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Callable[[DeltaTable], None],
) -> int:
    """Append `results`, null for none, in one commit that also says how far the operator is; returns their rows.

    `columns` are theirs; a commit without results starts no Spark.
    """
    uri = create_table(lake, operator, "", StructType([*columns.fields, StructField(WRITTEN_AT, TimestampType())]))
    if results is None:
        delta.note(uri, says=says, numbers=numbers, fence=fence)
        return 0
    return delta.append(
        results.withColumn(WRITTEN_AT, constant(now, "window_end")),
        uri,
        says=says,
        statistics=("window_start", "window_end"),
        numbers=numbers,
        fence=fence,
    )

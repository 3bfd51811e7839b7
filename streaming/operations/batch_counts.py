"""The number of rows of a log by batch, as the archive notes what leaves the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.base import BATCH, DAY
from streaming.declare import Pipeline, Stream
from streaming.lake import Lake
from streaming.operators import runtime_of


def counted_by_batch(rows: DataFrame, lake: Lake, pipeline: Pipeline, stream: Stream) -> dict[int, Mapping[str, Any]]:
    """Per batch of these `rows` of a log how many are valid and rejected, and the late pairs that each view has."""
    operators = [operator for operator in pipeline.operators if stream in operator.reads]
    counts = {operator.name: runtime_of(operator, lake).counts(stream) for operator in operators}
    late = {name: each.late for name, each in counts.items() if each is not None}
    valid = F.col(DAY).isNotNull()
    counted = (
        rows.groupBy(BATCH)
        .agg(
            F.count_if(valid).alias("valid"),
            F.count_if(~valid).alias("rejected"),
            *(F.coalesce(F.sum(each), F.lit(0)).alias(f"late_{name}") for name, each in late.items()),
        )
        .collect()
    )
    return {
        row[BATCH]: {
            "valid": row["valid"],
            "rejected": row["rejected"],
            "late": {name: row[f"late_{name}"] for name in late if row[f"late_{name}"]},
        }
        for row in counted
    }

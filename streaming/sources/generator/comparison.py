"""What a generator says against the log: rows that are missing there, or come twice."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streaming.sources.source import SourceChange, SourceComparison


def compare_offsets(origins: DataFrame) -> SourceComparison:
    """Whether `origins` (column `_origin`) have each row of each task once, from the first on."""
    origin = F.col("_origin")
    own = origins.where(origin.isNotNull())
    if "repairs" in origins.select("_origin.*").columns:
        # A row that repairs one has its place.
        own = own.where(origin["repairs"].isNull())
    tasks = (
        own.groupBy(origin["task"].alias("task"))
        .agg(
            F.count(F.lit(1)).alias("rows"),
            F.count_distinct(origin["offset"]).alias("offsets"),
            F.max(origin["offset"]).alias("last"),
        )
        .orderBy("task")
        .collect()
    )
    changes = tuple(
        SourceChange(
            "changed",
            f"task {row['task']}",
            f"task {row['task']} has {row['rows']:,} rows in the log, with {row['offsets']:,} offsets up to "
            f"{row['last']:,}; each should be there once.",
        )
        for row in tasks
        if not row["rows"] == row["offsets"] == row["last"] + 1
    )
    return SourceComparison(len(tasks), "tasks", changes)

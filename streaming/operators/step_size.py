"""How much one step takes at most."""

from __future__ import annotations

from pyspark.sql import SparkSession

ROWS_PER_CORE = 1_000_000
"""Rows of a log that one step takes at most, so that its memory is bounded however far an operator is behind."""


def rows_per_step(spark: SparkSession) -> int:
    """The same on all cores of a session."""
    return ROWS_PER_CORE * spark.sparkContext.defaultParallelism

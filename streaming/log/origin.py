"""The column `_origin` of the log: what the source says of where a row is from, and which rejected row it repairs."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streaming.sources import Source

REPAIRS = "repairs"
"""Field of `_origin`: the batch of the rejected row that a row repairs; null for the others."""


def origin_type(source: Source) -> str:
    """The type of `_origin` in the log, as Spark DDL."""
    return f"{source.origin.removesuffix('>')}, {REPAIRS}: bigint>"


def with_origin(taken: DataFrame) -> DataFrame:
    """The rows that a source gives, with the whole `_origin` of each: none of them repairs one."""
    return taken.withColumn("_origin", F.col("_origin").withField(REPAIRS, F.lit(None).cast("bigint")))


def place(origin: Column) -> Column:
    """What an original and its repair have in common, for use with the batch of the original."""
    return origin.dropFields(REPAIRS)

"""Reads a Delta table from its list of files, which delta-rs has without a Spark job.

Spark's own Delta reader computes the table's state anew at each version that it has not seen, in five jobs, and asks
for it in another at each read; of a small table that is most of the cost (see spark/FACTS.md, Costs). It skips files by
statistics, which is worth more than that where there are many.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from streaming.base import DAY
from streaming.tables.added_files import NO_DAY

MOST_FILES = 1_000
"""A table with more files than this is left to Spark's own reader."""

_DAY_OF_FILE = f"try_cast(regexp_extract(_metadata.file_path, '{DAY}=([^/]+)', 1) as date)"


def read_listed(spark: SparkSession, table: DeltaTable, uri: str) -> DataFrame | None:
    """The rows of the open `table` at `uri`; None where its files alone do not tell them, or are too many.

    Every table of the platform can be read so: it has no deletion vectors and no mapped columns, and its one partition
    column, if any, is the day in the names of its folders.
    """
    partitioned = table.metadata().partition_columns
    paths = [str(path) for path in table.get_add_actions()["path"].to_pylist()]
    if partitioned not in ([], [DAY]) or table.protocol().min_reader_version > 1 or len(paths) > MOST_FILES:
        return None
    return read_files(spark, table, uri, paths)


def read_files(
    spark: SparkSession, table: DeltaTable, uri: str, paths: Sequence[str], *, skip_pages: bool = True
) -> DataFrame:
    """The rows in some of the files of the open `table` at `uri`, by their `paths` in it, with all of its columns.

    `skip_pages`: look in each file's index for the pages that may pass a filter, which a small file costs more than it
    saves, and without literals in the filter finds nothing.
    """
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    if not paths:
        return spark.createDataFrame([], schema)
    partitioned = table.metadata().partition_columns
    stored = StructType([field for field in schema.fields if field.name not in partitioned])
    rows = (
        spark.read.schema(stored)
        # Spark would look for partition columns in the paths, and refuses folders of several writes.
        .option("recursiveFileLookup", "true")
        .option("parquet.filter.columnindex.enabled", str(skip_pages).lower())
        .parquet(*(f"{uri.rstrip('/')}/{path}" for path in paths))
    )
    if not partitioned:
        return rows
    day = _DAY_OF_FILE
    if all(f"{DAY}=" in path and NO_DAY not in path for path in paths):
        # Told that no day is null, Spark looks into the path of a row only where its day is asked for.
        day = f"coalesce({day}, date'1970-01-01')"
    return rows.select(*(F.expr(day).alias(DAY) if name in partitioned else name for name in schema.names))

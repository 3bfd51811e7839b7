"""Arrow tables as frames of Spark, with every row that they have."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType


def frame_of_arrow(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """A frame of the rows, with the columns of the `schema` if one is given.

    Spark reads a table chunk by chunk and stops at the first one without rows, as a filter leaves them behind: rows of
    later ones would be missing (see FACTS.md, Rows). So it is given one chunk, also of a table that has none.
    """
    whole = (
        rows.combine_chunks() if rows.num_rows else pa.Table.from_batches([pa.RecordBatch.from_pylist([], rows.schema)])
    )
    return spark.createDataFrame(whole, schema)

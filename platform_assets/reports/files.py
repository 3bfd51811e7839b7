"""Files beside the reports' tables, as CSV and PNG; a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from matplotlib.figure import Figure
from pyspark.sql import SparkSession

_DECIMALS = 4


def as_csv(table: pa.Table) -> bytes:
    """The rows with a header, floating-point numbers rounded for people; the Delta table keeps them exact."""
    rounded = [pc.round(column, _DECIMALS) if pa.types.is_floating(column.type) else column for column in table.columns]
    buffer = io.BytesIO()
    options = pa_csv.WriteOptions(quoting_style="needed")
    pa_csv.write_csv(pa.table(rounded, names=table.column_names), buffer, write_options=options)
    return buffer.getvalue()


def as_png(figure: Figure) -> bytes:
    """The figure as a PNG image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def put(spark: SparkSession, location: str, content: bytes) -> None:
    """Write `content` to any path or URI that Spark can write to, under a hidden name first, then renamed over it."""
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop.fs
    target = hadoop.Path(location)
    hidden = hadoop.Path(target.getParent(), f".{target.getName()}.tmp")
    configuration = context._jsc.hadoopConfiguration()
    # An instance of its own, because the shared one serves Spark: without the sidecar of checksums, which would accuse
    # everybody who edits the file.
    plain = hadoop.FileSystem.newInstance(target.toUri(), configuration)
    try:
        plain.setWriteChecksum(False)
        stream = plain.create(hidden, True)
        stream.write(content)
        stream.close()
    finally:
        plain.close()
    overwrite = context._gateway.new_array(getattr(hadoop, "Options$Rename"), 1)
    overwrite[0] = getattr(hadoop, "Options$Rename").OVERWRITE
    hadoop.FileContext.getFileContext(target.toUri(), configuration).rename(hidden, target, overwrite)

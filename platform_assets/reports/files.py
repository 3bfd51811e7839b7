"""Files beside the reports' tables; a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import io
from collections.abc import Sequence
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FileFormat = Literal["csv", "parquet", "html"]
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
_DECIMALS = 4
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>$title</title>
<style>
body { font-family: sans-serif; margin: 2em; color: #1f2933; }
img { max-width: 100%; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.3em 0.8em; border-bottom: 1px solid #d9dee3; text-align: right; }
</style>
</head>
<body>
<h1>$title</h1>
$picture
$rows
$footnotes
</body>
</html>
""")


def as_csv(table: pa.Table) -> bytes:
    """The rows with a header, floating-point numbers rounded for people; the Delta table keeps them exact."""
    buffer = io.BytesIO()
    pa_csv.write_csv(_rounded(table), buffer, write_options=pa_csv.WriteOptions(quoting_style="needed"))
    return buffer.getvalue()


def as_parquet(table: pa.Table) -> bytes:
    """The rows as they are."""
    buffer = io.BytesIO()
    pa_parquet.write_table(table, buffer)
    return buffer.getvalue()


def as_html(table: pa.Table, title: str, notes: Sequence[str], chart: str | None) -> bytes:
    """A page of its own: the rows for people, what a reader must know of them, and the chart from that file."""
    picture = f'<p><a href="{escape(chart)}"><img src="{escape(chart)}" alt="chart"></a></p>' if chart else ""
    footnotes = "".join(f"<p>{escape(note)}</p>" for note in notes)
    rows = _rounded(table).to_pandas(date_as_object=True).to_html(index=False, border=0, na_rep="")
    return _PAGE.substitute(title=escape(title), picture=picture, rows=rows, footnotes=footnotes).encode()


def _rounded(table: pa.Table) -> pa.Table:
    columns = [pc.round(column, _DECIMALS) if pa.types.is_floating(column.type) else column for column in table.columns]
    return pa.table(columns, names=table.column_names)


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

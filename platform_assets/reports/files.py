"""Files beside the reports' tables; a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from decimal import Decimal
from html import escape
from string import Template
from typing import TYPE_CHECKING, Any, Literal, get_args

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from pyspark.sql import SparkSession

from streaming.base import DeclarationError
from streaming.sinks import csv_table, plain_texts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FileFormat = Literal["csv", "parquet", "html"]
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
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
    """The rows with a header, each value as it is; lists, structs and maps are JSON."""
    buffer = io.BytesIO()
    pa_csv.write_csv(csv_table(table), buffer, write_options=pa_csv.WriteOptions(quoting_style="needed"))
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
    head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    columns = [plain_texts(column) for column in table.columns]
    lines = ("".join(f"<td>{escape(text or '')}</td>" for text in row) for row in zip(*columns, strict=True))
    body = "\n".join(f"<tr>{line}</tr>" for line in lines)
    rows = f"<table>\n<thead>\n<tr>{head}</tr>\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return _PAGE.substitute(title=escape(title), picture=picture, rows=rows, footnotes=footnotes).encode()


def with_decimals(table: pa.Table, decimals: Mapping[str, int]) -> pa.Table:
    """The rows for people: the numbers of some columns as text with so many digits after the point.

    Raises:
        DeclarationError: there is no such column, or it has no numbers.
    """
    for name, digits in decimals.items():
        place = table.schema.get_field_index(name)
        type_ = None if place < 0 else table.schema.field(place).type
        if type_ is None or not any(is_type(type_) for is_type in _NUMBERS):
            there = ", ".join(f"{field.name} ({field.type})" for field in table.schema)
            raise DeclarationError(f"decimals has {name!r}, which is no column of numbers; there are: {there}.")
        texts = [None if value is None else _rounded(value, digits) for value in table.column(place).to_pylist()]
        table = table.set_column(place, name, pa.array(texts, pa.string()))
    return table


def _rounded(value: float | Decimal, digits: int) -> str:
    # By the digits that people see: of a float the shortest ones that make it.
    number = Decimal(str(value))
    return f"{number:.{digits}f}" if number.is_finite() else str(number)


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

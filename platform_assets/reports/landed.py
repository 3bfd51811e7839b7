"""The versions of dimensions: what a file holds becomes one of a table in the lake, so that a report can be repeated.

No Spark is needed for it: dimensions are small, and sensors ask which version there is.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from deltalake import DeltaTable

from platform_assets.reports.dimension import Dimension
from platform_assets.reports.errors import DimensionError
from platform_assets.reports.postgres_dimension import copied
from platform_assets.reports.publication import digest
from quality import Pin
from quality.verdicts import table_id, table_name, write_rows
from streaming.base import arrow_schema
from streaming.lake import Lake
from streaming.tables import delta, newest_commits, storage

_PARSED = pa_csv.ParseOptions(newlines_in_values=True)


def _table(lake: Lake, dimension: Dimension) -> str:
    """Where the versions of a dimension are: a Delta table has its own."""
    return lake.path(dimension.path) if dimension.format == "delta" else lake.path("dimensions", dimension.name)


def land_dimension(lake: Lake, dimension: Dimension) -> Pin:
    """The newest version; what a file holds becomes one, unless it is that already.

    Raises:
        DimensionError: there is nothing at its place, or the file is not what is declared, or Postgres is away.
    """
    content = _content(lake, dimension)
    pin = _known_pin(lake, dimension, content)
    if pin is not None:
        return pin
    if content is None:
        raise DimensionError(
            f"dimension {dimension.name!r} has no {'Delta table' if dimension.format == 'delta' else 'file'} at "
            f"{lake.path(dimension.path)!r}",
            "put one there, or correct its place; that of a history is there once its pipeline has run.",
        )
    uri = _table(lake, dimension)
    version = write_rows(
        uri,
        _rows(dimension, content),
        "overwrite",
        metadata={"place": dimension.path, "digest": _digest(dimension, content)},
        description=f"What {dimension.path} held, version by version.",
    )
    table = delta.open_table(uri, version)
    assert table is not None, uri
    return _pin(lake, dimension, uri, table)


def newest_pin(lake: Lake, dimension: Dimension) -> Pin | None:
    """The version that a report would be made of now; None where what the file holds is none yet, or nothing is there.

    Writes nothing.
    """
    try:
        return _known_pin(lake, dimension, _content(lake, dimension))
    except DimensionError:
        # Whoever is to make the report then is told why it cannot be read.
        return None


def _content(lake: Lake, dimension: Dimension) -> bytes | None:
    """The content of the file or the table of Postgres; None where there is no file, and of a Delta table."""
    match dimension.format:
        case "delta":
            return None
        case "postgres":
            return copied(dimension)
    return storage.read_bytes(lake.path(dimension.path))


def _known_pin(lake: Lake, dimension: Dimension, content: bytes | None) -> Pin | None:
    """The newest version, of a file only if it is of that `content`."""
    uri = _table(lake, dimension)
    if content is None and dimension.format != "delta":
        return None
    table = delta.open_table(uri)
    if table is None or (content is not None and not _holds(table, _digest(dimension, content))):
        return None
    return _pin(lake, dimension, uri, table)


def _holds(table: DeltaTable, digest_of_file: str) -> bool:
    written = next(newest_commits(table))["userMetadata"]
    return bool(written) and written.get("digest") == digest_of_file


def _pin(lake: Lake, dimension: Dimension, uri: str, table: DeltaTable) -> Pin:
    return Pin(f"dimension {dimension.name}", table_name(lake, uri), uri, table_id(table), table.version())


def _digest(dimension: Dimension, content: bytes) -> str:
    # The same bytes declared with other columns are other rows.
    return digest(dimension.columns.encode() + b"\n" + content)


def _rows(dimension: Dimension, content: bytes) -> pa.Table:
    try:
        if dimension.format == "parquet":
            return pa_parquet.read_table(io.BytesIO(content))
        types = _typed(arrow_schema(dimension.columns))
        parsed = pa_csv.read_csv(io.BytesIO(content), parse_options=_PARSED, convert_options=types)
        return _checked(dimension, parsed)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise DimensionError(
            f"{dimension.path!r} is not what dimension {dimension.name!r} declares: {error}.",
            "Correct it or the declaration; nothing is published until then.",
            value=dimension.path,
        ) from error


def _typed(schema: pa.Schema) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types=schema,
        include_columns=schema.names,
        # Nothing is null but what is empty: by default Arrow would take NA, the code of Namibia, for null too.
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def _checked(dimension: Dimension, rows: pa.Table) -> pa.Table:
    for column in dimension.declared:
        if column.required and rows[column.name].null_count:
            row = rows[column.name].is_null().to_pylist().index(True) + 1
            raise pa.ArrowInvalid(f"column {column.name!r} is empty in row {row}, and declared not null")
    return rows

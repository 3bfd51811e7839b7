"""The versions of dimensions: what a file holds becomes one of a table in the lake, so that a report can be repeated.

No Spark is needed for it: dimensions are small, and sensors ask which version there is.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from platform_assets.reports.dimension import Dimension, arrow_type
from platform_assets.reports.errors import DimensionError
from platform_assets.reports.publication import digest
from quality import Pin
from quality.tables import table_id, table_name, write_rows
from streaming.base import Column
from streaming.lake import Lake
from streaming.tables import delta, newest_commits, storage


def _role(dimension: Dimension) -> str:
    """What the pin of a dimension is called among those of a report."""
    return f"dimension {dimension.name}"


def _table(lake: Lake, dimension: Dimension) -> str:
    """Where the versions of a dimension are: a Delta table has its own."""
    return lake.path(dimension.place) if dimension.format == "delta" else lake.path("dimensions", dimension.name)


def land_dimension(lake: Lake, dimension: Dimension) -> Pin:
    """The newest version; what a file holds becomes one, unless it is that already.

    Raises:
        DimensionError: there is nothing at its place, or the file is not what is declared.
    """
    if dimension.format != "delta":
        content = _content(lake, dimension)
        if (known := _pin_of(lake, dimension, content)) is not None:
            return known
        write_rows(
            _table(lake, dimension),
            _rows(dimension, content),
            "overwrite",
            metadata={"place": dimension.place, "digest": _digest(dimension, content)},
            description=f"What {dimension.place} held, version by version.",
        )
    pin = _newest(lake, dimension)
    if pin is None:
        raise _nothing(lake, dimension, "Delta table")
    return pin


def newest_pin(lake: Lake, dimension: Dimension) -> Pin | None:
    """The version that a report would be made of now; None where what the file holds is none yet, or nothing is there.

    Writes nothing.
    """
    if dimension.format == "delta":
        return _newest(lake, dimension)
    content = storage.read_bytes(lake.path(dimension.place))
    return None if content is None else _pin_of(lake, dimension, content)


def _pin_of(lake: Lake, dimension: Dimension, content: bytes) -> Pin | None:
    """The newest version, if it holds what `content` does."""
    table = delta.open_table(_table(lake, dimension))
    if table is None:
        return None
    newest = next(newest_commits(table))["userMetadata"]
    return _newest(lake, dimension) if newest and newest.get("digest") == _digest(dimension, content) else None


def _newest(lake: Lake, dimension: Dimension) -> Pin | None:
    uri = _table(lake, dimension)
    table = delta.open_table(uri)
    if table is None:
        return None
    return Pin(_role(dimension), table_name(lake, uri), uri, table_id(table), table.version())


def _digest(dimension: Dimension, content: bytes) -> str:
    # The same bytes declared with other columns are other rows.
    return digest(dimension.columns.encode() + b"\n" + content)


def _content(lake: Lake, dimension: Dimension) -> bytes:
    content = storage.read_bytes(lake.path(dimension.place))
    if content is None:
        raise _nothing(lake, dimension, "file")
    return content


def _nothing(lake: Lake, dimension: Dimension, what: str) -> DimensionError:
    return DimensionError(
        f"dimension {dimension.name!r} has no {what} at {lake.path(dimension.place)!r}; put one there, or correct its "
        "place."
    )


def _rows(dimension: Dimension, content: bytes) -> pa.Table:
    try:
        if dimension.format == "parquet":
            return pa_parquet.read_table(io.BytesIO(content))
        return _checked(dimension, pa_csv.read_csv(io.BytesIO(content), convert_options=_typed(dimension.declared)))
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise DimensionError(
            f"{dimension.place!r} is not what dimension {dimension.name!r} declares: {error}. Correct the file or the "
            "declaration; nothing is published until then."
        ) from error


def _typed(columns: tuple[Column, ...]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types={column.name: arrow_type(column) for column in columns},
        include_columns=[column.name for column in columns],
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

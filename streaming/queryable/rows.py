"""Rows of a table at one version that have a key, by Arrow: a value is compared, and never becomes part of a query."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from streaming.base import DAY, QueryError
from streaming.tables import storage

_PARTITION = f"partition.{DAY}"


def days_of(table: DeltaTable) -> set[Any]:
    """The days of which the table has rows."""
    return set(pa.table(table.get_add_actions(flatten=True)).column(_PARTITION).to_pylist())


def rows_with(
    table: DeltaTable, key: Mapping[str, str], *, day: Any = None, limit: int | None = None
) -> list[dict[str, Any]]:
    """The rows of the open table, those of one `day` where it is given, whose columns are what `key` says in text.

    With `limit` no more than that many are read.

    Raises:
        QueryError: a text is no value of its column's type.
    """
    schema = pa.schema(table.schema().to_arrow())
    condition = _condition(key, schema)
    stored = pa.schema([field for field in schema if field.name not in table.metadata().partition_columns])
    paths = _paths(table, day)
    if not paths:
        return []
    # Arrow skips parts of files by their own statistics. delta-rs would leave out files that it has none of.
    files = ds.dataset(paths, schema=stored, format="parquet", filesystem=storage.files_of(table))
    matches = files.to_table(filter=condition) if limit is None else files.head(limit, filter=condition)
    rows: list[dict[str, Any]] = matches.to_pylist(maps_as_pydicts="strict")
    return rows


def checked(key: Mapping[str, str], keys: Sequence[str]) -> None:
    """Refuse a column that is none of the key.

    Raises:
        QueryError: with those that are.
    """
    unknown = sorted(key.keys() - {*keys})
    if unknown:
        columns = ", ".join(keys) or "none: it has one value in all"
        raise QueryError(f"{', '.join(map(repr, unknown))} is no column of the key; its columns are: {columns}.")


def _paths(table: DeltaTable, day: Any) -> list[str]:
    added = pa.table(table.get_add_actions(flatten=True))
    paths = added.column("path").to_pylist()
    if day is None:
        return paths
    return [path for path, of in zip(paths, added.column(_PARTITION).to_pylist(), strict=True) if of == day]


def _condition(key: Mapping[str, str], schema: pa.Schema) -> pc.Expression | None:
    equal = [pc.field(name) == _scalar(name, text, schema.field(name).type) for name, text in key.items()]
    return reduce(lambda one, other: one & other, equal) if equal else None


def _scalar(name: str, text: str, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(text).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise QueryError(
            f"{name}={text!r} is no {kind}; write a value of that type, instants as in ISO 8601."
        ) from error


def plain(value: Any) -> Any:
    """The value in what JSON knows: instants in UTC and dates as ISO 8601, decimals and numbers that are none as text.

    Bytes are text, in which those that are no UTF-8 are U+FFFD.
    """
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Mapping):
        return {name if isinstance(name, str) else str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value

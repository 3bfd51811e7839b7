"""Bounds of the values in a file, as Delta's log keeps them, and the columns of a table of which all files have some.

Files of the platform keep bounds of a few columns. deltalake's `to_pyarrow_dataset` tells Arrow of each column that a
table may have bounds of, by its properties or else of the first 32, that its values lie within those of a file, also
where these are null: a filter then finds no row of it. So a table names the columns, and a file has the bounds of all
of them or of none: without any deltalake tells nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from pyarrow import types

from streaming.base import MILLISECOND

BOUNDED = "delta.dataSkippingStatsColumns"
"""The property of a table, one of Delta's own, that names the columns of which its files keep bounds."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = r"`(?:[^`]|``)+`|[^`,.\s]+"
_NAMED = re.compile(rf"({_PART})(\.(?:{_PART}))*")
_EXACT = {"BOOLEAN": {"NONE"}, "INT32": {"NONE", "INT", "DATE"}, "INT64": {"NONE", "INT", "TIMESTAMP"}}
"""The numbers that JSON has exactly, by Parquet's types. NaN is in no bounds, decimals would be rounded."""
_TEXTS = {"BYTE_ARRAY": {"STRING"}}
_BOUNDED_TYPES = _EXACT | _TEXTS


def can_be_bounded(type_: pa.DataType) -> bool:
    """True if a column of this type can have bounds in every file, short of texts and years that are beyond them."""
    exact = (types.is_integer, types.is_boolean, types.is_date, types.is_timestamp, types.is_string)
    return any(is_exact(type_) for is_exact in (*exact, types.is_large_string))


def property_of_bounded(columns: Iterable[str], schema: Schema) -> dict[str, str]:
    """The property of a table with this schema whose files keep bounds of those of `columns` that it has.

    It also names a field of each struct, without bounds: delta-rs loses all columns after one of which none is named.
    """
    fields = json.loads(schema.to_json())["fields"]
    bounded = {*columns} & {each["name"] for each in fields}
    named = (path for each in fields for path in ([[each["name"]]] if each["name"] in bounded else _paths(each)))
    return {BOUNDED: ",".join(".".join(map(_quoted, path)) for path in named) if bounded else ""}


def _paths(field: Mapping[str, Any]) -> list[list[str]]:
    """The path of a field of each struct that a column is, and holds but in arrays and maps; none of other columns."""
    type_ = field["type"]
    if not isinstance(type_, dict) or type_["type"] != "struct" or not type_["fields"]:
        return []
    within = [path for each in type_["fields"] for path in _paths(each)]
    return [[field["name"], *path] for path in within or [[type_["fields"][0]["name"]]]]


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`{}`".format(name.replace("`", "``"))


def named_bounded(table: DeltaTable) -> list[str] | None:
    """The columns of which the files of an open table keep bounds, by its property; None where it has none."""
    text = table.metadata().configuration.get(BOUNDED)
    if text is None:
        return None
    return [
        name[1:-1].replace("``", "`") if name[0] == "`" else name for name, field in _NAMED.findall(text) if not field
    ]


def bounded_columns(table: DeltaTable) -> list[str]:
    """The columns of which the files of an open table have bounds."""
    named = named_bounded(table)
    if named is not None:
        return named
    added = table.get_add_actions(flatten=True)
    least = {name: added[name].to_pylist() for name in added.schema.names if name.startswith("min.")}
    return [name.removeprefix("min.") for name, bounds in least.items() if any(bound is not None for bound in bounds)]


def file_statistics(footer: pq.FileMetaData, columns: Sequence[str]) -> dict[str, Any]:
    """Row count, and bounds and null counts of `columns` by the footer of a file, in Delta's form.

    There are bounds of all of them that are not null throughout, or there are none; a column that the file does not
    have is null.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    there = {footer.schema.column(place).path: place for place in range(len(footer.schema))}
    nulls: dict[str, int] = {}
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    for name in columns:
        if name not in there:
            nulls[name] = footer.num_rows
            continue
        per_group = [group.column(there[name]).statistics for group in groups]
        if any(entry is None or not entry.has_null_count for entry in per_group):
            continue
        nulls[name] = sum(entry.null_count for entry in per_group)
        span = _span(footer.schema.column(there[name]), per_group)
        if span is not None:
            least[name], greatest[name] = span
    counts = {"numRecords": footer.num_rows, "nullCount": nulls}
    unbounded = {*columns} - {name for name in columns if name in least or nulls.get(name) == footer.num_rows}
    return counts if unbounded or not least else {**counts, "minValues": least, "maxValues": greatest}


def _span(column: pq.ColumnSchema, per_group: Sequence[pq.Statistics]) -> tuple[Any, Any] | None:
    """The bounds of a column in JSON; None where Parquet knows none, or JSON has not just these."""
    kinds = _BOUNDED_TYPES.get(column.physical_type, ())
    bounds = [entry for entry in per_group if entry.has_min_max]
    if column.logical_type.type not in kinds or not bounds:
        return None
    if len(bounds) < sum(entry.num_values > 0 for entry in per_group):
        return None
    try:
        least, greatest = min(entry.min for entry in bounds), max(entry.max for entry in bounds)
        return _bound(least, round_up=False), _bound(greatest, round_up=True)
    except OverflowError:
        # Python knows the years 1 to 9999 only.
        return None


def _bound(value: Any, *, round_up: bool) -> Any:
    """A bound in JSON; Delta keeps instants with milliseconds only, so the upper bound is rounded up."""
    if not isinstance(value, datetime):
        return value.isoformat() if isinstance(value, date) else value
    instant = value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
    if round_up and instant.microsecond % 1000:
        instant += MILLISECOND
    # strftime would write the year 1 as "1".
    return f"{instant.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"

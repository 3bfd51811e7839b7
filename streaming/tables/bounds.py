"""Bounds of the values in a file, as Delta's log keeps them, and the columns of a table of which all files have some.

Files of the platform keep bounds of a few columns. deltalake's `to_pyarrow_dataset` tells Arrow of each column that a
table may have bounds of, by its properties or else of the first 32, that its values lie within those of a file, also
where these are null: a filter then finds no row of it. So a table names the columns, and a file has the bounds of all
of them or of none: without any deltalake tells nothing.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, Schema
from pyarrow import types

from streaming.base import MILLISECOND, to_micros

BOUNDED = "delta.dataSkippingStatsColumns"
"""The property of a table, one of Delta's own, that names the columns of which its files keep bounds."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PART = r"`(?:[^`]|``)+`|[^`,.\s]+"
_NAMED = re.compile(rf"({_PART})(\.(?:{_PART}))*")
_EXACT = {"BOOLEAN": {"NONE"}, "INT32": {"NONE", "INT", "DATE"}, "INT64": {"NONE", "INT", "TIMESTAMP"}}
"""The numbers that JSON has exactly, by Parquet's types. NaN is in no bounds, decimals would be rounded."""
_TEXTS = {"BYTE_ARRAY": {"STRING"}}
_BOUNDED_TYPES = _EXACT | _TEXTS
_MILLISECOND = 1_000
"""Units of an instant by which whoever wrote its bounds may have cut them off."""
_UNCUT = 31
"""Bytes of a text's bounds that are sure: Delta keeps 32 characters, and may have cut the last one in two."""
_NO_CHARACTER = "\ufffd".encode()
"""Stands in the bounds of texts for bytes that are no character, and is after most of those."""

Ordered = int | bytes
"""A value in the form in which it is compared: whole numbers, days and microseconds since 1970, and texts as UTF-8."""


class Span(NamedTuple):
    """The values of a column in some rows are from `least` to `greatest`, or are all null where these are None.

    Both may be off, but no value is out of them. A `greatest` text may be cut off: what begins with it is in the span.
    """

    least: Ordered | None
    greatest: Ordered | None
    has_nulls: bool

    def has_some_of(self, values: Sequence[Ordered], *, null: bool) -> bool:
        """True if one of the values, which are in order, may be in it, or null where that is one of them as well."""
        if null and self.has_nulls:
            return True
        if self.least is None or self.greatest is None:
            return False
        at = bisect_left(values, self.least)
        if at == len(values):
            return False
        value: Any = values[at]
        if isinstance(value, bytes) and isinstance(self.greatest, bytes):
            value = value[: len(self.greatest)]
        return value <= self.greatest


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


def is_ordered(type_: pa.DataType) -> bool:
    """True for a type of which bounds are asked: no doubles, as bounds have no NaN, nor decimals, which JSON rounds."""
    exact = (types.is_signed_integer, types.is_date32, types.is_string, types.is_large_string)
    return any(is_exact(type_) for is_exact in exact) or (types.is_timestamp(type_) and type_.unit == "us")


def ordered(values: pa.Array | pa.ChunkedArray) -> list[Ordered | None]:
    """Values of such a type in the form in which they are compared."""
    if types.is_string(values.type) or types.is_large_string(values.type):
        return list(values.cast(pa.binary()).to_pylist())
    return list(values.cast(pa.int32() if types.is_date32(values.type) else pa.int64()).to_pylist())


def spans_listed(added: pa.Table, columns: pa.Schema) -> list[dict[str, Span]]:
    """The spans of columns in each file that Delta lists, by its statistics: of those whose bounds these tell.

    `added` is as `files_added` gives it.
    """
    spans = [dict[str, Span]() for _ in range(added.num_rows)]
    for column in columns:
        names = [f"{which}.{column.name}" for which in ("min", "max", "null_count")]
        # The name of a field of a struct is written as that of a column with a dot.
        is_told = "." not in column.name and {*names} <= {*added.column_names} and is_ordered(column.type)
        if not is_told or any(added.schema.field(name).type != column.type for name in names[:2]):
            continue
        least, greatest = (ordered(added[name]) for name in names[:2])
        of_files = zip(least, greatest, added[names[2]].to_pylist(), added["num_records"].to_pylist(), strict=True)
        for place, (first, last, nulls, rows) in enumerate(of_files):
            if first is not None and last is not None:
                spans[place][column.name] = _widened(first, last, has_nulls=nulls != 0, of=column.type)
            elif rows is not None and nulls == rows:
                spans[place][column.name] = Span(None, None, has_nulls=True)
    return spans


def span_of_instants(earliest: datetime, latest: datetime) -> Span:
    """The span of instants between two of Delta's log; some may be null."""
    return Span(to_micros(earliest) - _MILLISECOND, to_micros(latest) + _MILLISECOND, has_nulls=True)


def spans_in_group(file: pq.ParquetFile, group: int, columns: pa.Schema) -> dict[str, Span]:
    """The spans of columns in one of the row groups of an open file, of those whose bounds its footer tells."""
    rows, spans = file.metadata.row_group(group), dict[str, Span]()
    places = {file.schema.column(place).path: place for place in range(len(file.schema))}
    for column in columns:
        if column.name not in file.schema_arrow.names:
            spans[column.name] = Span(None, None, has_nulls=True)
            continue
        has_type = file.schema_arrow.field(column.name).type == column.type
        if "." in column.name or not is_ordered(column.type) or not has_type:
            continue
        of_column = rows.column(places[column.name])
        told = of_column.statistics
        if told is None or of_column.physical_type not in ("INT32", "INT64", "BYTE_ARRAY"):
            continue
        nulls = told.null_count if told.has_null_count else None
        if told.has_min_max:
            spans[column.name] = Span(told.min_raw, told.max_raw, has_nulls=nulls != 0)
        elif nulls == rows.num_rows:
            spans[column.name] = Span(None, None, has_nulls=True)
    return spans


def _widened(least: Ordered, greatest: Ordered, *, has_nulls: bool, of: pa.DataType) -> Span:
    """A span by bounds as JSON has them, so wide that nothing is out of it that these have cut off or cannot say."""
    if types.is_timestamp(of) and isinstance(least, int) and isinstance(greatest, int):
        return Span(least - _MILLISECOND, greatest + _MILLISECOND, has_nulls)
    if isinstance(least, bytes) and isinstance(greatest, bytes):
        least, greatest = (each.partition(_NO_CHARACTER)[0][:_UNCUT] for each in (least, greatest))
    return Span(least, greatest, has_nulls)

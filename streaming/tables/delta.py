"""Delta tables: creating, opening, reading, and what of their rows a write adds or replaces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from streaming.base import DAY
from streaming.tables import storage
from streaming.tables.columns import added_columns, nullable
from streaming.tables.commit import Fence, is_written, partition_of, unfenced
from streaming.tables.commit import Staged as Staged
from streaming.tables.commit import Txn as Txn
from streaming.tables.commit import commit_files as commit_files
from streaming.tables.commit import note as note
from streaming.tables.commit import stage as stage
from streaming.tables.listed_files import read_listed
from streaming.tables.storage import files_of
from streaming.tables.table_format import CONFIGURATION as CONFIGURATION
from streaming.tables.table_format import DELTA_CONFIGURATION as DELTA_CONFIGURATION
from streaming.tables.table_format import exists as exists
from streaming.tables.table_format import opened as opened
from streaming.tables.table_format import opened_or_created as opened_or_created

BEFORE = -1
"""The version of a table that is not there yet."""


def contents(
    table: DeltaTable,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Those rows of a small table that pass all `filters`, such as `("batch", "=", 7)`, without Spark.

    Filter only by columns of which every file has statistics: where they are missing, delta-rs takes the bounds for
    null and leaves the file out.
    """
    return table.to_pyarrow_table(
        filters=None if filters is None else list(filters),
        columns=None if columns is None else list(columns),
        filesystem=files_of(table),
    )


def open_table(uri: str, version: int | None = None) -> DeltaTable | None:
    """The table at one `version` or the newest, or None where there is no table, which `BEFORE` always is."""
    return opened(uri, version) if version != BEFORE and exists(uri) else None


def version_of(uri: str) -> int | None:
    """The newest version of the table, or None where there is no table."""
    return None if (table := open_table(uri)) is None else table.version()


def schema_of(uri: str) -> StructType:
    """The columns of an existing table."""
    return StructType.fromJson(json.loads(opened(uri).schema().to_json()))


def missing_files(table: DeltaTable) -> list[str]:
    """The data files of an open table that are not in its storage, by their paths in it."""
    there = {path for path, _ in storage.walked(table.table_uri, lambda name: name != "_delta_log")}
    return [path for path in map(str, table.get_add_actions()["path"].to_pylist()) if path not in there]


def size(uri: str) -> int:
    """Bytes of the files in an existing table."""
    return int(sum(opened(uri).get_add_actions()["size_bytes"].to_pylist()))


def row_count(table: DeltaTable | None) -> int:
    """The rows of an open table, as the statistics of its files tell; none of one that is not there."""
    return 0 if table is None else int(sum(pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()))


def read(spark: SparkSession, uri: str, version: int | None = None) -> DataFrame:
    """The table as a batch frame, at one `version` or the newest, whatever is written after this call."""
    listed = read_listed(spark, opened(uri, version), uri)
    if listed is not None:
        return listed
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(uri)


def create(
    uri: str,
    schema: StructType,
    *,
    append_only: bool,
    description: str,
    properties: Mapping[str, str] | None = None,
) -> None:
    """Create the table at `uri`, empty, if it is not there yet; `properties` are its own.

    It is partitioned by `_day` where `schema` has that column.
    """
    opened_or_created(
        uri,
        Schema.from_json(nullable(schema).json()),
        description=description,
        append_only=append_only,
        partition_by=partition_of(schema.names),
        properties=properties,
    )


def has_written(uri: str, txn: Txn) -> bool:
    """True if the table already holds this write."""
    table = open_table(uri)
    return table is not None and is_written(table, txn)


def append(
    frame: DataFrame,
    uri: str,
    says: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    statistics: Sequence[str] = (),
    fence: Fence = unfenced,
    txn: Txn | None = None,
) -> int:
    """Append the rows of `frame` to an existing table in one commit; for the rest see `stage` and `Staged.commit`."""
    return stage(frame, uri, statistics=statistics).commit(says or {}, numbers, fence=fence, txn=txn)


def widen(uri: str, schema: StructType) -> None:
    """Add the columns of `schema` that the table at `uri` lacks; its rows read null there.

    Raises:
        LogError: a column has another type than in the table.
    """
    table = opened(uri)
    added = added_columns(table, schema, uri)
    if added:
        table.alter.add_columns(added)


def replace_days(
    frame: DataFrame,
    uri: str,
    days: Iterable[date],
    says: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    statistics: Sequence[str] = ("window_start",),
    fence: Fence = unfenced,
) -> int:
    """Replace the partitions of `days` by the rows of `frame`, all of those days, in one commit."""
    partitions = [(DAY, "in", [day.isoformat() for day in sorted(days)])]
    return stage(frame, uri, statistics=statistics, replaces=partitions).commit(says or {}, numbers, fence=fence)


def replace_all(
    frame: DataFrame,
    uri: str,
    says: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    statistics: Sequence[str] = ("window_start",),
    fence: Fence = unfenced,
) -> int:
    """Replace every row of the table, and its columns, by those of `frame`, in one commit; returns how many rows."""
    return stage(frame, uri, statistics=statistics, replaces=()).commit(says or {}, numbers, fence=fence)

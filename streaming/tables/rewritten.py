"""Rows taken out of a table: the files that hold them are written anew without them, in one commit."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from streaming.base import DAY, F
from streaming.tables.bounds import bounded_columns
from streaming.tables.data_files import files_of_write, read_files
from streaming.tables.delta import commit_once, days_of, opened

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE = "_file"


@dataclass(frozen=True)
class Split:
    """Which rows of a frame are `taken` out, and which are `kept`; both with all columns of the frame."""

    taken: Callable[[DataFrame], DataFrame]
    kept: Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class TakenOut:
    """The number of rows that are taken out of a table, and of the files that they are from."""

    rows: int
    files: int


def to_be_taken(spark: SparkSession, uri: str, split: Split) -> TakenOut:
    """The amount that `take_out` would take out of the table at `uri`."""
    return _told(_files_of_taken(spark, opened(uri), uri, split))


def take_out(
    spark: SparkSession,
    uri: str,
    split: Split,
    metadata: Mapping[str, Any],
    numbers: Mapping[str, int] | None = None,
) -> TakenOut:
    """Take rows out of the table at `uri`: files that hold some are written anew, others stay as they are.

    The commit is a rewrite, as compaction's is: append-only tables take it, and who follows the table by its versions
    passes over it. Where another commit came between, the table is looked at anew. The table keeps the `numbers` from
    then on; there is no commit where there is nothing to take out.
    """
    table, counts = opened(uri), dict[str, int]()

    def write(properties: CommitProperties) -> None:
        nonlocal counts
        counts = _files_of_taken(spark, table, uri, split)
        if counts:
            _rewrite(spark, table, uri, split, list(counts), properties)

    commit_once(table, metadata, numbers or {}, write)
    return _told(counts)


def _told(counts: Mapping[str, int]) -> TakenOut:
    return TakenOut(sum(counts.values()), len(counts))


def take_out_days(
    spark: SparkSession,
    uri: str,
    before: date,
    split: Split | None,
    metadata: Mapping[str, Any],
    numbers: Mapping[str, int],
) -> int:
    """Take all rows of the days `before` out of the table at `uri`, and return how many files these had.

    So do, of the rows without a day, those that are taken by the `split`, null for none. One commit, as that of
    `take_out`; the table keeps `numbers` from then on.
    """
    table, files = opened(uri), list[str]()

    def write(properties: CommitProperties) -> None:
        nonlocal files
        days = _files_by_day(table)
        files = [path for path, day in days.items() if day is not None and day < before]
        undated = [path for path, day in days.items() if day is None]
        others = [] if split is None else list(_files_of_taken(spark, table, uri, split, undated))
        _rewrite(spark, table, uri, split, others, properties, gone=files)

    commit_once(table, metadata, numbers, write)
    return len(files)


def _rewrite(
    spark: SparkSession,
    table: DeltaTable,
    uri: str,
    split: Split | None,
    files: list[str],
    properties: CommitProperties,
    gone: Sequence[str] = (),
) -> None:
    """Commit `files` written anew without what the split takes, and without the files that are `gone` as a whole."""
    now, partitions = int(time.time() * 1000), _partitions(table)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(path, False, now, *partitions[path]) for path in (*files, *gone)
    ]
    if split is not None and files:
        kept, folder = split.kept(read_files(spark, table, uri, files)), f"data/{uuid.uuid4().hex}"
        kept.write.partitionBy(*table.metadata().partition_columns).parquet(f"{uri}/{folder}")
        added, _ = files_of_write(table, folder, bounded_columns(table))
        actions += [replace(action, data_change=False) for action in added if isinstance(action, AddAction)]
    table.create_write_transaction(
        actions,
        mode="append",
        schema=table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=properties,
    )


def _files_by_day(table: DeltaTable) -> dict[str, date | None]:
    added = table.get_add_actions(flatten=True)
    return dict(zip(map(str, added["path"].to_pylist()), added[f"partition.{DAY}"].to_pylist(), strict=True))


def _files_of_taken(
    spark: SparkSession, table: DeltaTable, uri: str, split: Split, among: Sequence[str] | None = None
) -> dict[str, int]:
    """The files, by their paths in the table, that hold rows to be taken out, and how many each holds."""
    paths = [str(path) for path in table.get_add_actions()["path"].to_pylist()] if among is None else list(among)
    if not paths:
        return {}
    by_end = {unquote(path): path for path in paths}
    rows = read_files(spark, table, uri, paths).withColumn(_FILE, F.input_file_name())
    counted = split.taken(rows).groupBy(_FILE).count().collect()
    root = unquote(uri).rstrip("/").partition("://")[2] or unquote(uri).rstrip("/")
    return {by_end[unquote(row[_FILE]).partition(f"{root}/")[2]]: row["count"] for row in counted}


def _partitions(table: DeltaTable) -> dict[str, tuple[int, dict[str, str | None]]]:
    added = table.get_add_actions(flatten=True)
    columns = [name for name in added.schema.names if name.startswith("partition.")]
    names = [name.removeprefix("partition.") for name in columns]
    files = {}
    for path, size, *days in zip(*(added[name].to_pylist() for name in ("path", "size_bytes", *columns)), strict=True):
        texts = (None if day is None else str(day) for day in days)
        files[str(path)] = (int(size), dict(zip(names, texts, strict=True)))
    return files


def forget_days(uri: str, before: date) -> None:
    """Take the partitions of the days `before` out of the table, in one commit; none where there are none."""
    if any(day < before for day in days_of(uri)):
        opened(uri).delete(f"{DAY} < '{before.isoformat()}'")

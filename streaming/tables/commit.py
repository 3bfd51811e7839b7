"""The one way in which rows get into a Delta table: Spark writes the Parquet files, delta-rs commits exactly those.

Spark's own commit of a tiny batch costs about a second, nearly all of it recomputing the snapshot; this road costs a
seventh of it (see spark/FACTS.md, Costs).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import RemoveAction
from pyspark.sql import DataFrame
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.base import DAY, RewrittenError
from streaming.tables.added_files import added_files
from streaming.tables.columns import added_columns, nullable
from streaming.tables.history import write_checksum
from streaming.tables.storage import files_of, location
from streaming.tables.task_files import TaskFile

_ATTEMPTS = 8
_MARK = "mark"


@dataclass(frozen=True)
class Txn:
    """The idempotence key of a write: a query writes each of its batches at most once."""

    app_id: str
    version: int


def attempts(table: DeltaTable) -> Retrying:
    """Attempts of a commit: where another one came between, the table is looked at anew before the next."""
    return Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(_ATTEMPTS),
        wait=wait_random_exponential(0.05, max=2),
        after=lambda _: table.update_incremental(),
        reraise=True,
    )


@dataclass(frozen=True)
class Mark:
    """By this a commit knows itself again: a store may carry out a request whose answer is lost, and then refuse it.

    `since` is the version of the table that the first attempt is for.
    """

    since: int
    text: str = field(default_factory=lambda: uuid.uuid4().hex)

    def is_in(self, table: DeltaTable) -> bool:
        """Whether an open table has the commit; nothing is read where nobody has committed since the first attempt."""
        return any(self._is_of(table, version) for version in range(self.since + 1, table.version() + 1))

    def _is_of(self, table: DeltaTable, version: int) -> bool:
        try:
            with files_of(table).open_input_stream(f"_delta_log/{version:020}.json") as entry:
                return self.text.encode() in entry.read()
        except FileNotFoundError:
            return False


def commit_rows(
    frame: DataFrame,
    uri: str,
    *,
    txn: Txn | None,
    metadata: Callable[[], Mapping[str, Any]],
    statistics: Sequence[str],
    diverse: Sequence[str] = (),
    fence: Callable[[DeltaTable], None] = lambda table: None,
    numbers: Callable[[], Mapping[str, int]] = dict,
    on_written: Callable[[Callable[[], DataFrame]], None] = lambda read: None,
    mode: Literal["append", "overwrite"] = "append",
    replace: Sequence[tuple[str, str, Any]] | None = None,
) -> int:
    """Write the rows of `frame` into the table in one commit; returns how many they were, 0 where `txn` is there.

    `mode="overwrite"` replaces the rows that pass the partition filters `replace`, or without such all rows and
    columns; for the rest see `delta.append`.

    Raises:
        LogError: a column has another type than in the table.
    """
    table = DeltaTable(location(uri))
    whole = mode == "overwrite" and replace is None
    if not whole:
        added_columns(table, frame.schema, uri)
    # A folder of this attempt: files of an attempt that died are never committed, and VACUUM takes them.
    folder = f"data/{uuid.uuid4().hex}"
    encoding = {f"parquet.enable.dictionary#{name}": "false" for name in diverse}
    partition = partition_of(frame.columns)
    frame.write.partitionBy(*partition).options(**encoding).parquet(f"{uri}/{folder}")
    on_written(lambda: frame.sparkSession.read.schema(frame.schema).parquet(f"{uri}/{folder}"))
    mark = Mark(table.version())
    properties = commit_properties(metadata(), numbers(), mark, txn)
    actions, rows = added_files(table, folder, statistics)
    for attempt in attempts(table):
        with attempt:
            if mark.is_in(table):
                break
            # What came between is compaction, which changes no row, or another process, which is for the fence and the
            # transaction to judge: delta-rs itself would store the same transaction twice.
            fence(table)
            if txn is not None and is_written(table, txn):
                return 0
            added = [] if whole else added_columns(table, frame.schema, uri)
            if added:
                table.alter.add_columns(added)
            table.create_write_transaction(
                actions,
                mode=mode,
                schema=Schema.from_json(nullable(frame.schema).json()) if whole else table.schema(),
                partition_by=partition,
                partition_filters=None if replace is None else list(replace),
                commit_properties=properties,
            )
    table.update_incremental()
    write_checksum(table)
    return rows


def commit_files(
    uri: str,
    files: Sequence[TaskFile],
    *,
    metadata: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Callable[[DeltaTable], None],
    mode: Literal["append", "overwrite"] = "append",
    schema: Schema | None = None,
    replaces: Sequence[tuple[str, int]] = (),
) -> int:
    """Take files that tasks have written into the table in one commit; returns how many rows they hold.

    `mode="overwrite"` replaces all rows, and with `schema` the columns; `replaces` names files by path and size whose
    rows go in the same commit. For the rest see `delta.append`.

    Raises:
        RewrittenError: one of the files to be replaced is not in the table any more.
    """
    table = DeltaTable(location(uri))
    mark = Mark(table.version())
    for attempt in attempts(table):
        with attempt:
            if mark.is_in(table):
                break
            fence(table)
            _check_has(table, replaces)
            table.create_write_transaction(
                [*(_removed(path, size) for path, size in replaces), *(file.action() for file in files)],
                mode=mode,
                schema=schema or table.schema(),
                partition_by=table.metadata().partition_columns,
                commit_properties=commit_properties(metadata, numbers, mark),
            )
    table.update_incremental()
    write_checksum(table)
    return sum(file.rows for file in files)


def _check_has(table: DeltaTable, files: Sequence[tuple[str, int]]) -> None:
    there = set(table.get_add_actions()["path"].to_pylist()) if files else set()
    gone = next((path for path, _ in files if path not in there), None)
    if gone is not None:
        raise RewrittenError(
            f"file {gone!r} of table {table.table_uri!r} was to be replaced and is not there any more: somebody else "
            "has rewritten the table meanwhile. Nothing was changed; the next attempt begins with what is there now."
        )


def _removed(path: str, size: int) -> RemoveAction:
    now = int(time.time() * 1000)
    return RemoveAction(path=path, data_change=True, deletion_timestamp=now, size=size, partition_values={})


def note(
    uri: str,
    *,
    metadata: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Callable[[DeltaTable], None] = lambda table: None,
) -> None:
    """A commit without rows, which starts no Spark: the table keeps `numbers` from now on, as `delta.append` says."""
    commit_files(uri, [], metadata=metadata, numbers=numbers, fence=fence)


def partition_of(columns: Sequence[str]) -> list[str]:
    """What a table with these columns is partitioned by: the day, where it has one."""
    return [DAY] if DAY in columns else []


def is_written(table: DeltaTable, txn: Txn) -> bool:
    """Whether an open table holds this write."""
    written = table.transaction_version(txn.app_id)
    return written is not None and written >= txn.version


def commit_properties(
    metadata: Mapping[str, Any], numbers: Mapping[str, int], mark: Mark, txn: Txn | None = None
) -> CommitProperties:
    """What a commit says of itself, and the `numbers` that its table keeps from then on."""
    own = [] if txn is None else [Transaction(txn.app_id, txn.version)]
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(metadata), _MARK: mark.text},
        app_transactions=[*own, *(Transaction(name, number) for name, number in numbers.items())] or None,
        # The commit is for exactly the version that was looked at: compare and swap.
        max_commit_retries=0,
    )

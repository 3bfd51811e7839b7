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
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.base import DAY, RewrittenError
from streaming.tables.added_files import added_files
from streaming.tables.columns import added_columns, nullable
from streaming.tables.history import write_checksum
from streaming.tables.storage import files_of
from streaming.tables.table_format import opened
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
        """True if an open table has the commit; nothing is read where nobody has committed since the first attempt."""
        return any(self._is_of(table, version) for version in range(self.since + 1, table.version() + 1))

    def _is_of(self, table: DeltaTable, version: int) -> bool:
        try:
            with files_of(table).open_input_stream(f"_delta_log/{version:020}.json") as entry:
                return self.text.encode() in entry.read()
        except FileNotFoundError:
            return False


Fence = Callable[[DeltaTable], None]
"""Is asked, with the very version of the table that a commit follows, whether this process may still write, and raises
where it may not."""


def unfenced(table: DeltaTable) -> None:
    """The fence of a table that anybody may write."""


@dataclass(frozen=True)
class Staged:
    """`rows` rows in files beside a table, of which nobody knows until they are committed."""

    uri: str
    rows: int
    _table: DeltaTable
    _frame: DataFrame
    _folder: str
    _actions: Sequence[AddAction | RemoveAction]
    _replaces: Sequence[tuple[str, str, Any]] | None
    """Partition filters of the rows that the staged ones replace: none for all, with their columns; None for no row."""

    def read(self) -> DataFrame:
        """The rows as they were written; where there are any, that costs less than to compute or to keep them."""
        return self._frame.sparkSession.read.schema(self._frame.schema).parquet(f"{self.uri}/{self._folder}")

    def commit(
        self,
        says: Mapping[str, Any],
        numbers: Mapping[str, int] | None = None,
        *,
        fence: Fence = unfenced,
        txn: Txn | None = None,
    ) -> int:
        """Take the rows into the table in one commit; returns how many they were, 0 where `txn` is there already.

        The commit `says` JSON values, which go when the history is cleaned; the `numbers` are kept by the table from
        then on, and `transaction_version` of their names gives them back.

        Raises:
            LogError: a column has another type than in the table.
        """
        table, schema = self._table, self._frame.schema
        mark = Mark(table.version())
        properties = commit_properties(says, numbers or {}, mark, txn)
        whole = self._replaces == ()
        for attempt in attempts(table):
            with attempt:
                if mark.is_in(table):
                    break
                # What came between is compaction, which changes no row, or another process, which is for the fence and
                # the transaction to judge: delta-rs itself would store the same transaction twice.
                fence(table)
                if txn is not None and is_written(table, txn):
                    return 0
                added = [] if whole else added_columns(table, schema, self.uri)
                if added:
                    table.alter.add_columns(added)
                table.create_write_transaction(
                    list(self._actions),
                    mode="append" if self._replaces is None else "overwrite",
                    schema=Schema.from_json(nullable(schema).json()) if whole else table.schema(),
                    partition_by=partition_of(schema.names),
                    partition_filters=list(self._replaces) if self._replaces else None,
                    commit_properties=properties,
                )
        table.update_incremental()
        write_checksum(table)
        return self.rows


def stage(
    frame: DataFrame,
    uri: str,
    *,
    statistics: Sequence[str] = (),
    diverse: Sequence[str] = (),
    replaces: Sequence[tuple[str, str, Any]] | None = None,
) -> Staged:
    """Write the rows of `frame` beside the existing table at `uri`, as files that a commit can take.

    Columns that the table does not have yet are added to it by a commit of their own before; its old rows read null
    there. A column of the table that `frame` does not have is null in the new rows. `statistics` names the columns
    whose bounds are kept for file skipping, `diverse` those whose values hardly repeat, so that no time goes into a
    dictionary of them. The rows replace those that pass the partition filters `replaces`: `()` stands for all rows and
    all columns, None for no row.

    Raises:
        LogError: a column has another type than in the table.
    """
    table = opened(uri)
    if replaces != ():
        added_columns(table, frame.schema, uri)
    # A folder of this attempt: files of an attempt that died are never committed, and VACUUM takes them.
    folder = f"data/{uuid.uuid4().hex}"
    encoding = {f"parquet.enable.dictionary#{name}": "false" for name in diverse}
    frame.write.partitionBy(*partition_of(frame.columns)).options(**encoding).parquet(f"{uri}/{folder}")
    actions, rows = added_files(table, folder, statistics)
    return Staged(uri, rows, table, frame, folder, actions, replaces)


def commit_files(
    uri: str,
    files: Sequence[TaskFile],
    *,
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Fence,
    mode: Literal["append", "overwrite"] = "append",
    schema: Schema | None = None,
    replaces: Sequence[tuple[str, int]] = (),
) -> int:
    """Take files that tasks have written into the table in one commit; returns how many rows they hold.

    `mode="overwrite"` replaces all rows, and with `schema` the columns; `replaces` names files by path and size whose
    rows go in the same commit. For the rest see `Staged.commit`.

    Raises:
        RewrittenError: one of the files to be replaced is not in the table any more.
    """
    table = opened(uri)
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
                commit_properties=commit_properties(says, numbers, mark),
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
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Fence = unfenced,
) -> None:
    """A commit without rows, which starts no Spark, and is otherwise as `Staged.commit` says."""
    commit_files(uri, [], says=says, numbers=numbers, fence=fence)


def partition_of(columns: Sequence[str]) -> list[str]:
    """The columns by which a table with these columns is partitioned: the day, where it has one."""
    return [DAY] if DAY in columns else []


def is_written(table: DeltaTable, txn: Txn) -> bool:
    """True if an open table holds this write."""
    written = table.transaction_version(txn.app_id)
    return written is not None and written >= txn.version


def commit_properties(
    says: Mapping[str, Any], numbers: Mapping[str, int], mark: Mark, txn: Txn | None = None
) -> CommitProperties:
    """The properties of a commit: what it says of itself, and the `numbers` that its table keeps from then on."""
    own = [] if txn is None else [Transaction(txn.app_id, txn.version)]
    return CommitProperties(
        custom_metadata={"userMetadata": json.dumps(says), _MARK: mark.text},
        app_transactions=[*own, *(Transaction(name, number) for name, number in numbers.items())] or None,
        # The commit is for exactly the version that was looked at: compare and swap.
        max_commit_retries=0,
    )

"""Delta tables: created, opened, read, and the one way in which rows get into them.

Spark writes the Parquet files beside the table, and delta-rs commits exactly those. Spark's own commit of a tiny batch
costs about a second, nearly all of it recomputing the snapshot; this road costs a seventh of it (see spark/FACTS.md,
Costs).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, DataType, StructField, StructType
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from streaming.base import DAY, DISTRIBUTION, RELEASE, FormatError, LogError, RewrittenError
from streaming.tables import s3, storage
from streaming.tables.data_files import TaskFile, added_files, read_listed, read_paths
from streaming.tables.s3 import location
from streaming.tables.storage import files_of, replace_bytes

FORMAT = 1
"""The newest format that this release reads and writes.

It is a number in the properties of a table, which every open one has in memory; a table without one is of the first
format. It is raised by the release whose tables an earlier one would read wrongly.
"""
PROPERTY = "tidemark.format"
DELTA_CONFIGURATION = {
    # delta-rs's default of 100 makes small appends three times slower.
    "delta.checkpointInterval": "10",
    # The history is the clock's memory: no commit cleans it up by the way, only maintenance, which archives it first.
    # Looking for what could be cleaned also makes each commit dearer than the one before.
    "delta.enableExpiredLogCleanup": "false",
}
"""The configuration of Delta's own with which every table is created."""
CONFIGURATION = {PROPERTY: str(FORMAT), **DELTA_CONFIGURATION}
"""With the format beside it: delta-rs takes a property that is not Delta's only where it creates an empty table."""
_ATTEMPTS = 8
_MARK = "mark"
BEFORE = -1
"""The version of a table that is not there yet."""


def exists(uri: str) -> bool:
    """True if there is a table; a store that is away, or refuses, is a `StoreError`."""
    with s3.reaching(uri):
        return DeltaTable.is_deltatable(location(uri))


def opened(uri: str, version: int | None = None) -> DeltaTable:
    """The existing table at one `version` or the newest.

    Raises:
        FormatError: a newer release has made it, in a format that this one does not know.
    """
    table = DeltaTable(location(uri), version)
    number = table.metadata().configuration.get(PROPERTY, "1")
    if not (number.isdecimal() and int(number) <= FORMAT):
        raise FormatError(
            f"table {uri!r} has format {number}, and this release, Tidemark {RELEASE}, knows formats up to {FORMAT}: a "
            f"newer release has made it. Nothing was read or changed.",
            f"Install that release here, too, with `pip install --upgrade {DISTRIBUTION}`, or point TIDEMARK_HOME to "
            "another lake.",
            table=uri,
            value=number,
            known=FORMAT,
        )
    return table


def opened_or_created(
    uri: str,
    schema: Schema | pa.Schema,
    *,
    description: str,
    append_only: bool = False,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> DeltaTable:
    """The table at `uri`, created empty if it is not there yet; `properties` are its own.

    Raises:
        FormatError: as `opened` says.
    """
    if not exists(uri):
        DeltaTable.create(
            location(uri),
            schema,
            mode="ignore",
            partition_by=list(partition_by),
            description=description,
            configuration={**CONFIGURATION, "delta.appendOnly": str(append_only).lower(), **(properties or {})},
            # delta-rs refuses properties that are not Delta's own unless told not to.
            raise_if_key_not_exists=False,
        )
    return opened(uri)


def added_columns(table: DeltaTable, schema: StructType, uri: str) -> list[Field]:
    """The fields of `schema` that the table lacks, nullable, in order, and those that have more fields than there.

    A struct, also within arrays and structs, may have fields that the table's lacks, whose old rows read null there,
    and may lack some that it has.

    Raises:
        LogError: the table has a field of that name, which Delta does not tell by case, with another type.
    """
    stored = StructType.fromJson(json.loads(table.schema().to_json()))
    there = {column.name.lower(): column for column in stored.fields}
    lacking = []
    for new in nullable(schema).fields:
        existing = there.get(new.name.lower())
        if existing is None:
            lacking.append(Field.from_json(new.json()))
            continue
        together = _together(existing.dataType, new.dataType) if existing.name == new.name else None
        if together is None:
            raise LogError(
                f"the table {uri!r} has the column '{existing.name} {existing.dataType.simpleString()}', and what is "
                f"to be written has '{new.name} {new.dataType.simpleString()}'. The type of a column stays: give "
                f"it back, and declare the new one beside it as 'new_{new.name}', which is added to the table. A "
                "format that maps columns to fields reads it of the field, and the old column of one that never comes: "
                f"Json(..., fields={{'new_{new.name}': '{new.name}', '{new.name}': 'old_{new.name}'}}); what "
                f"reads both says coalesce(new_{new.name}, {new.name}). To begin anew, move the table and its "
                "checkpoint away. Nothing was written."
            )
        if together != existing.dataType:
            lacking.append(Field.from_json(StructField(new.name, together).json()))
    return lacking


def _together(one: DataType, other: DataType) -> DataType | None:
    """The type that has the fields of both, those of `one` first; None where they differ in anything else."""
    if isinstance(one, StructType) and isinstance(other, StructType):
        names = {each.name.lower(): each for each in one.fields}
        both = dict(names)
        for each in other.fields:
            before = names.get(each.name.lower())
            if before is None:
                both[each.name.lower()] = each
                continue
            type_ = _together(before.dataType, each.dataType) if before.name == each.name else None
            if type_ is None:
                return None
            both[each.name.lower()] = StructField(each.name, type_)
        return StructType(list(both.values()))
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        elements = _together(one.elementType, other.elementType)
        return None if elements is None else ArrayType(elements)
    # Of a map delta-rs could not read the old files any more.
    return one if one == other else None


def nullable(schema: StructType) -> StructType:
    """`schema` as a table keeps it: everything may be null, and no metadata."""
    document = json.loads(schema.json())

    def relax(node: Any) -> Any:
        if isinstance(node, dict):
            return {
                key: True
                if key in ("nullable", "containsNull", "valueContainsNull")
                else {}
                if key == "metadata"
                else relax(value)
                for key, value in node.items()
            }
        return [relax(entry) for entry in node] if isinstance(node, list) else node

    return StructType.fromJson(relax(document))


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
    schema: StructType
    _table: DeltaTable
    _actions: Sequence[AddAction | RemoveAction]
    _replaces: Sequence[tuple[str, str, Any]] | None = None
    """Partition filters of the rows that the staged ones replace: none for all, with their columns; None for no row."""

    @property
    def paths(self) -> list[str]:
        """The files, by their paths in the table."""
        return [each.path for each in self._actions]

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows as they were written, which costs less than to compute or to keep them."""
        return read_paths(spark, self.uri, self.schema, partition_of(self.schema.names), self.paths)

    def with_rows_of(self, other: Staged) -> Staged:
        """These rows and those of another one beside the same table, for one commit."""
        return replace(self, rows=self.rows + other.rows, _actions=[*self._actions, *other._actions])

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
        table, schema = self._table, self.schema
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
    return Staged(uri, rows, nullable(frame.schema), table, actions, replaces)


def staged_files(uri: str, table: DeltaTable, schema: StructType, files: Sequence[TaskFile]) -> Staged:
    """Files that tasks have written beside an open table, with the columns of `schema`, for a commit to take."""
    return Staged(uri, sum(file.rows for file in files), schema, table, [file.action() for file in files])


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


def write_checksum(table: DeltaTable) -> None:
    """Write the checksum of the version that is open, if it can be written: readers can do without it."""
    path = f"{table.table_uri.rstrip('/')}/_delta_log/{table.version():020}.crc"
    with suppress(OSError):
        replace_bytes(path, json.dumps(_checksum(table)).encode(), uuid.uuid4().hex)


def _checksum(table: DeltaTable) -> dict[str, Any]:
    sizes = table.get_add_actions()["size_bytes"].to_pylist()
    metadata, protocol = table.metadata(), table.protocol()
    features = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
    return {
        "tableSizeBytes": sum(sizes),
        "numFiles": len(sizes),
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": str(metadata.id),
            "name": metadata.name,
            "description": metadata.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": table.schema().to_json(),
            "partitionColumns": metadata.partition_columns,
            "configuration": metadata.configuration,
            "createdTime": metadata.created_time,
        },
        "protocol": {
            "minReaderVersion": protocol.min_reader_version,
            "minWriterVersion": protocol.min_writer_version,
            **{name: sorted(values) for name, values in features.items() if values is not None},
        },
    }


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
) -> DeltaTable:
    """The table at `uri`, created empty if it is not there yet; `properties` are its own.

    It is partitioned by `_day` where `schema` has that column.
    """
    return opened_or_created(
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

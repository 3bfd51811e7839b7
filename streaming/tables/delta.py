"""Delta tables: created, opened, read, and written in two phases.

First Spark, or its tasks, write Parquet files into the table's folder, which are then `Staged`; then delta-rs commits
exactly those files. Spark's own commit of a tiny batch costs about a second, nearly all of it recomputing the snapshot;
this way costs a seventh of that (see spark/FACTS.md, Costs).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction

from streaming.base import DAY, DISTRIBUTION, RELEASE, FormatError, LogError, RewrittenError, T, pc
from streaming.tables import s3, storage
from streaming.tables.about import NOTHING_SAID, TableAbout, with_metadata
from streaming.tables.arrow import arrow_schema_of, read_at_most
from streaming.tables.bounds import property_of_bounded, spans_listed
from streaming.tables.data_files import TaskFile, TaskFiles, files_added, files_of_write, read_listed, read_paths
from streaming.tables.history import attempts, entry_path, has_entry, write_checksum
from streaming.tables.matching import DataFile, Keys, rows_among
from streaming.tables.s3 import location
from streaming.tables.storage import files_of, is_on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 1
"""The newest format that this release reads and writes.

It is a number in the properties of a table, which every open one has in memory; a table without one is of the first
format. It is raised by the release whose tables an earlier one would read wrongly.
"""
PROPERTY = "tidemark.format"
"""The property of a table that holds its format."""
DELTA_CONFIGURATION = {
    # delta-rs's default of 100 makes small appends three times slower.
    "delta.checkpointInterval": "10",
    # Commits of a log hold the state of its clock, so only maintenance removes old ones, which archives them first.
    # With it on, each commit would also look for entries to remove, and cost more than the one before.
    "delta.enableExpiredLogCleanup": "false",
}
"""The properties, of those that Delta defines, with which every table is created."""
CONFIGURATION = {PROPERTY: str(FORMAT), **DELTA_CONFIGURATION}
"""All properties with which an empty table is created: only then delta-rs takes one that Delta does not define."""
_MARK = "mark"
"""The key, in the metadata of a commit, of the text of its `Mark`."""
BEFORE = -1
"""The version of a table that is not there yet."""


def exists(uri: str) -> bool:
    """True if there is a table at `uri`.

    Raises:
        StoreError: the object store cannot be reached, or refuses.
    """
    with s3.reaching(uri):
        return DeltaTable.is_deltatable(location(uri))


def opened(uri: str, version: int | None = None) -> DeltaTable:
    """The existing table at one `version` or the newest.

    Raises:
        FormatError: a newer release wrote it in a format that this one does not know.
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


def refresh(table: DeltaTable) -> None:
    """Bring an open table up to its newest version."""
    files, version = files_of(table), table.version()
    # delta-rs lists the log for it, which on a disk takes as long as that has files. A version whose entry is there and
    # whose next one is not is the newest: entries are cleaned away from the oldest on.
    if is_on_disk(files) and not has_entry(files, version + 1) and has_entry(files, version):
        return
    table.update_incremental()


def open_table(uri: str, version: int | None = None) -> DeltaTable | None:
    """The table at one `version` or the newest; None where there is no table, and at the version `BEFORE`.

    Raises:
        FormatError: as `opened` says.
    """
    return opened(uri, version) if version != BEFORE and exists(uri) else None


def version_of(uri: str) -> int | None:
    """The newest version of the table, or None where there is no table."""
    return None if (table := open_table(uri)) is None else table.version()


def columns_of(table: DeltaTable) -> T.StructType:
    """The columns of an open table."""
    return T.StructType.fromJson(json.loads(table.schema().to_json()))


def schema_of(uri: str) -> T.StructType:
    """The columns of an existing table."""
    return columns_of(opened(uri))


def opened_or_created(
    uri: str,
    schema: Schema | pa.Schema,
    *,
    description: str,
    append_only: bool = False,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> DeltaTable:
    """The table at `uri`, created empty if it is not there yet; `properties` are added to those of every table.

    Where they do not tell of which columns its files keep bounds, they keep bounds of none.

    Raises:
        FormatError: as `opened` says.
    """
    if not exists(uri):
        columns = schema if isinstance(schema, Schema) else Schema.from_arrow(schema)
        without_bounds = property_of_bounded((), columns)
        appends = {"delta.appendOnly": str(append_only).lower()}
        DeltaTable.create(
            location(uri),
            columns,
            mode="ignore",
            partition_by=list(partition_by),
            description=description,
            configuration={**CONFIGURATION, **appends, **without_bounds, **(properties or {})},
            # delta-rs refuses properties that are not Delta's own unless told not to.
            raise_if_key_not_exists=False,
        )
    return opened(uri)


def create(
    uri: str,
    schema: T.StructType,
    *,
    append_only: bool,
    description: str,
    partition_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    about: TableAbout = NOTHING_SAID,
) -> DeltaTable:
    """The table at `uri`, created empty if it is not there yet, with columns of Spark types; see `opened_or_created`.

    It is partitioned by `_day` where `schema` has that column and nothing else is said. Where `about` does not tell of
    which columns its files keep bounds, they keep bounds of none.
    """
    columns = Schema.from_json(with_metadata(nullable(schema), about.columns).json())
    return opened_or_created(
        uri,
        columns,
        description=description,
        append_only=append_only,
        partition_by=partition_of(schema.names) if partition_by is None else partition_by,
        properties={**about.properties, **property_of_bounded(about.bounded or (), columns), **(properties or {})},
    )


def widen(uri: str, schema: T.StructType) -> None:
    """Add the columns of `schema` that the table at `uri` lacks; its rows read null there.

    Raises:
        LogError: a column has another type than in the table.
    """
    widen_open(opened(uri), schema)


def widen_open(table: DeltaTable, schema: T.StructType) -> None:
    """Widen an open table, as `widen` does; it is of the version with the columns then."""
    added = added_columns(table, schema, table.table_uri)
    if added:
        table.alter.add_columns(added)


def widened(uri: str, schema: T.StructType) -> DeltaTable:
    """The table at `uri`, opened once `widen` has given it the columns of `schema`."""
    widen(uri, schema)
    return opened(uri)


def added_columns(table: DeltaTable, schema: T.StructType, uri: str) -> list[Field]:
    """The columns to add to the table at `uri`, so that it can take rows of `schema`; all are nullable, in order.

    They are those that the table does not have, and structs, also within arrays and structs, with fields that the
    table's struct does not have: such a column is given with the fields of both. A struct of `schema` may also lack
    fields that the table's has.

    Raises:
        LogError: the table has a column of that name, whose case does not count in Delta, with another type.
    """
    stored = columns_of(table)
    there = {column.name.lower(): column for column in stored.fields}
    lacking = []
    for new in nullable(schema).fields:
        existing = there.get(new.name.lower())
        if existing is None:
            lacking.append(Field.from_json(new.json()))
            continue
        merged = _merged_type(existing.dataType, new.dataType) if existing.name == new.name else None
        if merged is None:
            raise LogError(
                f"the table {uri!r} has the column '{existing.name} {existing.dataType.simpleString()}', and what is "
                f"to be written has '{new.name} {new.dataType.simpleString()}'. The type of a column stays: give "
                f"it back, and declare the new one beside it as 'new_{new.name}', which is added to the table. A "
                "format that maps columns to fields reads it of the field, and the old column of one that never comes: "
                f"Json(..., fields={{'new_{new.name}': '{new.name}', '{new.name}': 'old_{new.name}'}}); what "
                f"reads both says coalesce(new_{new.name}, {new.name}). To begin anew, move the table and its "
                "checkpoint away. Nothing was written."
            )
        if merged != existing.dataType:
            lacking.append(Field.from_json(T.StructField(new.name, merged).json()))
    return lacking


def _merged_type(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """The type that has the fields of both, those of `one` first; None where they differ in anything else."""
    if isinstance(one, T.StructType) and isinstance(other, T.StructType):
        names = {each.name.lower(): each for each in one.fields}
        both = dict(names)
        for each in other.fields:
            before = names.get(each.name.lower())
            if before is None:
                both[each.name.lower()] = each
                continue
            type_ = _merged_type(before.dataType, each.dataType) if before.name == each.name else None
            if type_ is None:
                return None
            both[each.name.lower()] = T.StructField(each.name, type_)
        return T.StructType(list(both.values()))
    if isinstance(one, T.ArrayType) and isinstance(other, T.ArrayType):
        elements = _merged_type(one.elementType, other.elementType)
        return None if elements is None else T.ArrayType(elements)
    # Structs within a map get no new fields, because delta-rs could then not read the old files.
    return one if one == other else None


def nullable(schema: T.StructType) -> T.StructType:
    """`schema` as a table keeps it: everything may be null at every level, and no field has metadata."""

    def relaxed(node: Any) -> Any:
        if isinstance(node, list):
            return [relaxed(entry) for entry in node]
        if not isinstance(node, dict):
            return node
        document = {key: relaxed(value) for key, value in node.items()}
        document |= {key: True for key in ("nullable", "containsNull", "valueContainsNull") if key in node}
        return {**document, "metadata": {}} if "metadata" in node else document

    return T.StructType.fromJson(relaxed(json.loads(schema.json())))


def partition_of(columns: Sequence[str]) -> list[str]:
    """The columns by which a table with these columns is partitioned: the day, where it has one."""
    return [DAY] if DAY in columns else []


def partitions(table: DeltaTable) -> list[str]:
    """The columns by which an open table is partitioned."""
    return list(table.metadata().partition_columns)


@dataclass(frozen=True)
class Mark:
    """A random text in a commit, by which a later attempt finds that an earlier one has succeeded after all.

    The store may carry out a request whose answer is lost; the next attempt then fails, because the version is there.
    `since` is the version of the table that the first attempt starts from.
    """

    since: int
    text: str = field(default_factory=lambda: uuid.uuid4().hex)

    def is_in(self, table: DeltaTable) -> bool:
        """True if an open table has the commit; reads only the entries of the versions after `since`."""
        return any(self._is_of(table, version) for version in range(self.since + 1, table.version() + 1))

    def _is_of(self, table: DeltaTable, version: int) -> bool:
        try:
            with files_of(table).open_input_stream(entry_path(version)) as entry:
                return self.text.encode() in entry.read()
        except FileNotFoundError:
            return False


Fence = Callable[[DeltaTable], None]
"""A check whether this process may still write: it is called with the table at the very version that a commit follows,
and raises where another process has taken over."""


def unfenced(table: DeltaTable) -> None:
    """The fence of a table that anybody may write."""


@dataclass(frozen=True)
class Staged:
    """Files in the folder of the table at `uri` that no commit has added yet, so that no reader sees their rows.

    `rows` is the number of these rows, `schema` has their columns.
    """

    uri: str
    rows: int
    schema: T.StructType
    _table: DeltaTable
    _actions: Sequence[AddAction]
    _replaces: Sequence[tuple[str, str, Any]] | None = None
    """Partition filters of the rows of the table that the staged ones replace.

    `()` stands for all rows, and then the columns are replaced, too; None for no row, so that the staged are appended.
    """
    _outdated: Sequence[str] = ()
    """Files of the table, by their paths in it, that the staged ones replace."""

    @property
    def table(self) -> DeltaTable:
        """The open table, which has the rows once they are committed."""
        return self._table

    @property
    def paths(self) -> list[str]:
        """The files, by their paths in the table."""
        return [each.path for each in self._actions]

    def read(self, spark: SparkSession) -> DataFrame:
        """The rows, read from the files that were written, which costs less than to compute or cache them."""
        return read_paths(spark, self.uri, self.schema, partitions(self._table), self.paths)

    def undated(self, column: str) -> pa.ChunkedArray:
        """A column of the rows without a day, read without Spark; of all rows where no day parts the table."""
        from pyarrow import parquet

        files = storage.below(self.uri)
        read = partial(parquet.read_table, columns=[column], filesystem=files, partitioning=None)
        by_day = DAY in partitions(self._table)
        paths = [each.path for each in self._actions if not by_day or (each.partition_values or {}).get(DAY) is None]
        parts = [read(path).column(column) for path in paths]
        return pa.chunked_array(
            [chunk for part in parts for chunk in part.chunks], parts[0].type if parts else pa.null()
        )

    def least(self, column: str) -> Any:
        """The least bound that a file has of a column, as JSON has it; None where no file has one."""
        bounds = (json.loads(each.stats).get("minValues", {}) for each in self._actions)
        return min((each[column] for each in bounds if column in each), default=None)

    def with_rows_of(self, other: Staged) -> Staged:
        """These rows and those of another one beside the same table, for one commit."""
        return replace(self, rows=self.rows + other.rows, _actions=[*self._actions, *other._actions])

    def replacing(self, files: Sequence[TaskFile], outdated: Sequence[str]) -> Staged:
        """These rows and those of `files`, which stand for the `outdated` files of the table, for one commit."""
        return replace(
            self,
            rows=self.rows + sum(file.rows for file in files),
            _actions=[*self._actions, *(file.action() for file in files)],
            _outdated=outdated,
        )

    def commit(
        self,
        says: Mapping[str, Any],
        numbers: Mapping[str, int] | None = None,
        *,
        fence: Fence = unfenced,
    ) -> int:
        """Commit the rows to the table; returns how many they were.

        `says` are JSON values that describe the commit, in its `userMetadata`; they go when the history is cleaned.
        `numbers` stay with the table, each as the version of a Delta transaction of that name, until a later commit
        gives another number; `transaction_version` reads them. `fence` is called before each attempt.

        Raises:
            LogError: a column has another type than in the table.
            RewrittenError: one of the files to be replaced is not in the table any more.
            FencedError: the `fence` says so.
        """
        table, schema = self._table, self.schema
        replaces_all = self._replaces == ()

        def write(properties: CommitProperties) -> None:
            added = [] if replaces_all else added_columns(table, schema, self.uri)
            if added:
                fence(table)
                # A commit of its own, before which delta-rs takes in what others have committed.
                table.alter.add_columns(added)
            # A commit that came between is a compaction, which changes no row, or one of another process, which only
            # the fence can refuse: delta-rs would take the number of the same batch twice.
            fence(table)
            table.create_write_transaction(
                [*_removals(table, self._outdated), *self._actions],
                mode="append" if self._replaces is None else "overwrite",
                schema=_replaced_schema(table, schema) if replaces_all else table.schema(),
                partition_by=partitions(table),
                partition_filters=list(self._replaces) if self._replaces else None,
                commit_properties=properties,
            )

        commit_once(table, says, numbers or {}, write)
        return self.rows


def _replaced_schema(table: DeltaTable, schema: T.StructType) -> Schema:
    """The columns of `schema`, each with the metadata that the open table has for it by now."""
    said = {field.name: field.metadata for field in table.schema().fields}
    return Schema.from_json(with_metadata(nullable(schema), said).json())


def stage(
    frame: DataFrame,
    uri: str,
    *,
    table: DeltaTable | None = None,
    statistics: Sequence[str] = (),
    diverse: Sequence[str] = (),
    replaces: Sequence[tuple[str, str, Any]] | None = None,
) -> Staged:
    """Write the rows of `frame` as files into the folder of the existing table at `uri`, for a commit to add.

    Columns that the table does not have yet are added to it by a commit of their own, right before that of the rows;
    its old rows read null there. A column of the table that `frame` does not have is null in the new rows. `statistics`
    names the columns whose bounds are kept for file skipping, `diverse` those whose values hardly repeat, so that no
    time goes into a dictionary of them. The rows replace those that pass the partition filters `replaces`: `()` stands
    for all rows and all columns, None for no row. Whoever has opened the `table` by then gives it; it is brought up to
    date by the commit.

    Raises:
        LogError: a column has another type than in the table.
    """
    table = opened(uri) if table is None else table
    if replaces != ():
        # A type that does not fit is refused before anything is written.
        added_columns(table, frame.schema, uri)
    # Each attempt has a folder of its own, so that no files of one that died are committed; VACUUM removes those.
    folder = f"data/{uuid.uuid4().hex}"
    encoding = {f"parquet.enable.dictionary#{name}": "false" for name in diverse}
    frame.write.partitionBy(*partitions(table)).options(**encoding).parquet(f"{uri}/{folder}")
    actions, rows = files_of_write(table, folder, statistics)
    return Staged(uri, rows, nullable(frame.schema), table, actions, replaces)


def stage_rows(
    uri: str,
    rows: pa.Table,
    schema: T.StructType,
    *,
    table: DeltaTable | None = None,
    statistics: Sequence[str] = (),
) -> Staged:
    """As `stage`, of rows in memory, without Spark; `schema` has their columns as the table keeps them.

    A type that does not fit is refused by the commit. Whoever has opened the `table` by then gives it; it is brought up
    to date by the commit.
    """
    return stage_portions(uri, [rows], schema, table=table, statistics=statistics)


def stage_portions(
    uri: str,
    portions: Iterable[pa.Table],
    schema: T.StructType,
    *,
    table: DeltaTable | None = None,
    statistics: Sequence[str] = (),
) -> Staged:
    """As `stage_rows`, of rows that come a portion after the other; few of them are in memory at once."""
    table = opened(uri) if table is None else table
    by = partitions(table)
    files: TaskFiles | None = None
    for rows in portions:
        stored = pa.schema([field for field in rows.schema if field.name not in by])
        files = files or TaskFiles(uri, stored, statistics, dated=bool(by))
        for day in pc.unique(rows[DAY]).to_pylist() if by else [None]:
            chosen = rows.filter(_is_day(rows[DAY], day)).select(stored.names) if by else rows
            for batch in chosen.combine_chunks().to_batches():
                files.write(batch, day)
    return staged_files(uri, table, nullable(schema), [] if files is None else files.close())


def _is_day(days: pa.ChunkedArray, day: date | None) -> pa.ChunkedArray:
    return pc.is_null(days) if day is None else pc.equal(days, pa.scalar(day))


def staged_files(uri: str, table: DeltaTable, schema: T.StructType, files: Sequence[TaskFile]) -> Staged:
    """The `files` that tasks have written into the folder of an open table, with the columns of `schema`."""
    return Staged(uri, sum(file.rows for file in files), schema, table, [file.action() for file in files])


def commit_files(
    uri: str,
    files: Sequence[TaskFile],
    *,
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Fence,
    table: DeltaTable | None = None,
    mode: Literal["append", "overwrite"] = "append",
    schema: Schema | None = None,
    outdated: Sequence[str] = (),
) -> int:
    """Commit the `files`, which tasks have written, to the table; returns how many rows they hold.

    `table` is the open one where somebody has it; it has the commit then.
    `mode="overwrite"` replaces all rows, and with `schema` the columns; `outdated` names files of the table, by
    their paths in it, that the commit removes. For `says`, `numbers` and `fence` see `Staged.commit`.

    Raises:
        RewrittenError: one of the files to be replaced is not in the table any more.
        FencedError: the `fence` says so.
    """
    there = opened(uri) if table is None else table

    def write(properties: CommitProperties) -> None:
        fence(there)
        there.create_write_transaction(
            [*_removals(there, outdated), *(file.action() for file in files)],
            mode=mode,
            schema=schema or there.schema(),
            partition_by=partitions(there),
            commit_properties=properties,
        )

    commit_once(there, says, numbers, write)
    return sum(file.rows for file in files)


def _removals(table: DeltaTable, paths: Sequence[str]) -> list[RemoveAction]:
    """The removal of files from an open table.

    Raises:
        RewrittenError: one of them is not there any more.
    """
    if not paths:
        return []
    listed, by = files_added(table), partitions(table)
    sizes = dict(zip(listed["path"].to_pylist(), listed["size_bytes"].to_pylist(), strict=True))
    gone = next((path for path in paths if path not in sizes), None)
    if gone is not None:
        raise RewrittenError(
            f"file {gone!r} of table {table.table_uri!r} was to be replaced and is not there any more: somebody else "
            "has rewritten the table meanwhile. Nothing was changed; the next attempt begins with what is there now."
        )
    of_each = {name: dict(zip(sizes, listed[f"partition.{name}"].to_pylist(), strict=True)) for name in by}
    now = int(time.time() * 1000)
    return [
        RemoveAction(
            path=path,
            data_change=True,
            deletion_timestamp=now,
            size=sizes[path],
            partition_values={
                name: None if values[path] is None else str(values[path]) for name, values in of_each.items()
            },
        )
        for path in paths
    ]


def note(
    uri: str,
    *,
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    fence: Fence = unfenced,
) -> None:
    """Commit `says` and `numbers` without any rows, as `Staged.commit` does; starts no Spark.

    Raises:
        FencedError: the `fence` says so.
    """
    commit_files(uri, [], says=says, numbers=numbers, fence=fence)


def commit_once(
    table: DeltaTable,
    says: Mapping[str, Any],
    numbers: Mapping[str, int],
    write: Callable[[CommitProperties], None],
) -> None:
    """Let `write` make one commit to an open table, with the properties that it is given, which say `says`.

    It is called again where another commit came first, with the table brought up to date, until it or a call before it
    has succeeded. For `says` and `numbers` see `Staged.commit`.
    """
    mark = Mark(table.version())
    properties = CommitProperties(
        custom_metadata={"userMetadata": json.dumps(says), _MARK: mark.text},
        app_transactions=[Transaction(name, number) for name, number in numbers.items()] or None,
        # delta-rs must not retry on a newer version, which the fence has not seen.
        max_commit_retries=0,
    )
    for attempt in attempts(table):
        with attempt:
            if mark.is_in(table):
                break
            write(properties)
    table.update_incremental()
    if table.version() > mark.since:
        write_checksum(table)


def are_of(days: Iterable[date]) -> list[tuple[str, str, Any]]:
    """The filter of the partitions of some days."""
    return [(DAY, "in", sorted(day.isoformat() for day in days))]


def days_of(uri: str, version: int | None = None) -> set[date]:
    """The days of which the table has partitions, at one `version` or the newest; none where there is no table."""
    table = open_table(uri, version)
    if table is None:
        return set()
    days = table.get_add_actions(flatten=True)[f"partition.{DAY}"].to_pylist()
    return {day for day in days if day is not None}


def rows_on(table: DeltaTable, days: Collection[date]) -> int:
    """The number of rows that an open table has of some days."""
    files = table.get_add_actions(flatten=True)
    of_each = zip(files[f"partition.{DAY}"].to_pylist(), files["num_records"].to_pylist(), strict=True)
    return sum(rows for day, rows in of_each if day in days)


def contents(
    table: DeltaTable,
    filters: Sequence[tuple[str, str, Any]] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of a small table that pass all `filters`, such as `("batch", "=", 7)`, read without Spark.

    Filter only by columns of which every file has statistics: where they are missing, delta-rs takes the bounds for
    null and leaves the file out. `columns` are those to be read, all where it is left out.
    """
    return table.to_pyarrow_table(
        filters=None if filters is None else list(filters),
        columns=None if columns is None else list(columns),
        filesystem=files_of(table),
    )


def contents_on(table: DeltaTable, days: Collection[date], columns: Sequence[str]) -> pa.Table:
    """Some columns of the rows that an open table has of some days, read without Spark."""
    return contents(table, are_of(days), columns)


def among(table: DeltaTable, keys: Keys, columns: Sequence[str], most: int) -> pa.Table | None:
    """Columns of the rows of an open table that have one of the keys, read without Spark.

    No column of `columns` is a partition's. None where `rows_among` is None, or files alone do not tell the rows.
    """
    if table.protocol().min_reader_version > 1:
        return None
    schema, added = arrow_schema_of(table), files_added(table)
    paths, counts, sizes = (added[name].to_pylist() for name in ("path", "num_records", "size_bytes"))
    candidates = list(map(DataFile, paths, counts, spans_listed(added, keys.schema), sizes))
    return rows_among(files_of(table), candidates, pa.schema([schema.field(name) for name in columns]), keys, most)


def appended_files(table: DeltaTable, since: int) -> pa.Table | None:
    """The files that were added to an open table after its version `since`, as `files_added` lists them.

    None where files of that version are there no more, as after a compaction, or where the version itself is gone.
    """
    try:
        before = open_table(table.table_uri, since)
    except DeltaError:
        return None
    old = set() if before is None else {*files_added(before)["path"].to_pylist()}
    there = files_added(table)
    new = there.filter(pa.array([path not in old for path in there["path"].to_pylist()], pa.bool_()))
    is_compacted = there.num_rows - new.num_rows < len(old)
    return None if is_compacted else new


def appended_rows(table: DeltaTable, since: int, columns: Sequence[str], most: int) -> pa.Table | None:
    """The rows in the `appended_files`, read without Spark; None also where they are more than `most`."""
    new = appended_files(table, since)
    return None if new is None else read_at_most(table, new, columns, most)


def size(uri: str) -> int:
    """The bytes of all data files of an existing table."""
    return int(sum(opened(uri).get_add_actions()["size_bytes"].to_pylist()))


def row_count(table: DeltaTable | None) -> int:
    """The number of rows of an open table, by the statistics of its files; 0 for a table that is not there."""
    return 0 if table is None else int(sum(files_added(table)["num_records"].to_pylist()))


def read(spark: SparkSession, uri: str, version: int | None = None) -> DataFrame:
    """The table as a batch frame, at one `version` or the newest; what is written after this call is not in it."""
    listed = read_listed(spark, opened(uri, version), uri)
    if listed is not None:
        return listed
    reader = spark.read.format("delta")
    return (reader if version is None else reader.option("versionAsOf", version)).load(uri)


def append(
    frame: DataFrame,
    uri: str,
    says: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    statistics: Sequence[str] = (),
    fence: Fence = unfenced,
) -> int:
    """Append the rows of `frame` to an existing table in one commit; for the rest see `stage` and `Staged.commit`."""
    return stage(frame, uri, statistics=statistics).commit(says or {}, numbers, fence=fence)


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
    """Replace the partitions of `days` by the rows of `frame`, which are all of those days, in one commit.

    Returns how many rows there are; for the rest see `stage` and `Staged.commit`.
    """
    return stage(frame, uri, statistics=statistics, replaces=are_of(days)).commit(says or {}, numbers, fence=fence)


def replace_all(
    frame: DataFrame,
    uri: str,
    says: Mapping[str, Any] | None = None,
    numbers: Mapping[str, int] | None = None,
    *,
    statistics: Sequence[str] = ("window_start",),
    fence: Fence = unfenced,
) -> int:
    """Replace every row of the table, and its columns, by those of `frame`, in one commit.

    Returns how many rows there are; for the rest see `stage` and `Staged.commit`.
    """
    return stage(frame, uri, statistics=statistics, replaces=()).commit(says or {}, numbers, fence=fence)

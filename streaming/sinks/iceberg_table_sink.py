"""An Iceberg table as deliveries write it: files and one commit for a batch, by PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg import exceptions
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table, Transaction
from sqlalchemy.exc import SQLAlchemyError

from streaming.base import SinkError, filled
from streaming.sinks.sink import Delivered, NumberedBatch, check_own
from streaming.sinks.table_rows import Bounds, kept_type
from streaming.sinks.table_sink import MovedMeanwhile, StoredFile, StoredTable, TableSink

_NEWEST_FORMAT = 2


def _raised_by_clients() -> Iterator[type[Exception]]:
    """The errors of the clients of Glue, DynamoDB and Hive, as far as these are installed."""
    with suppress(ImportError):
        from botocore.exceptions import BotoCoreError, ClientError

        yield from (BotoCoreError, ClientError)
    with suppress(ImportError):
        from thrift.Thrift import TException

        yield TException


_RAISED = (
    *(each for each in vars(exceptions).values() if isinstance(each, type) and issubclass(each, Exception)),
    *(SQLAlchemyError, OSError, ValueError, pa.ArrowException),
    *_raised_by_clients(),
)
"""The errors of PyIceberg, which have no class in common, and of what it stands on."""


class IcebergSink(TableSink):
    """The table of that name in a catalog, which stays open."""

    def __init__(
        self, name: str, catalog: Mapping[str, str], address: str, delivered: Delivered, *, upserts: bool
    ) -> None:
        super().__init__(address, delivered, upserts=upserts)
        self._name = name
        self._properties = catalog
        self._opened: Catalog | None = None

    def open(self) -> StoredIceberg | None:
        try:
            table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            return None
        return StoredIceberg(table, self.address, self._delivered)

    def create(self, columns: pa.Schema) -> StoredIceberg:
        catalog = self._catalog
        catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        table = catalog.create_table_if_not_exists(self._name, columns)
        return StoredIceberg(table, self.address, self._delivered)

    @contextmanager
    def telling(self) -> Iterator[None]:
        try:
            yield
        except _RAISED as error:
            self.close()
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise SinkError(
                f"{self.address}: {lines[0].rstrip('.')}. Check that catalog and storage are there, and that they may "
                "be written to; the batch is sent again by itself, and is there once.",
                address=self.address,
            ) from error

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _catalog(self) -> Catalog:
        if self._opened is None:
            given = filled(self._properties, f"IcebergTable {self._name!r}", SinkError)
            self._opened = load_catalog(given.pop("name", "default"), **given)
        return self._opened


class _Single(Transaction):
    """A transaction that is tried once: PyIceberg would repeat it behind what another process has committed."""

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("Somebody else has committed meanwhile.")


class StoredIceberg(StoredTable):
    """A table as the catalog had it when it was loaded."""

    def __init__(self, table: Table, address: str, delivered: Delivered) -> None:
        self._table = table
        self._address = address
        self._delivered = delivered
        self._property = f"tidemark.progress.{delivered.name}"
        self._tasks: dict[str, FileScanTask] = {}

    @cached_property
    def columns(self) -> pa.Schema:
        fields = self._table.schema().as_arrow()
        return pa.schema([pa.field(each.name, kept_type(each.type) or each.type, each.nullable) for each in fields])

    def check(self, *, upserts: bool) -> None:
        version = self._table.metadata.format_version
        if version > _NEWEST_FORMAT:
            raise SinkError(
                f"{self._address} has version {version} of Iceberg's format, and rows are written to those up to "
                f"{_NEWEST_FORMAT}. Deliver to another table.",
                address=self._address,
            )

    def newest(self, generation: int) -> int:
        progress = self._progress
        if progress:
            way_out = f"remove the table's property {self._property!r}"
            check_own(self._delivered, progress["identity"], self._address, "the table", way_out)
        return int(progress.get("batches", {}).get(str(generation), -1))

    def newest_generation(self) -> int:
        return max(map(int, self._progress.get("batches", {})), default=-1)

    def files(self, bounds: Bounds | None = None) -> Sequence[StoredFile]:
        found = [*self._table.scan(row_filter=_within(bounds)).plan_files()]
        self._tasks |= {task.file.file_path: task for task in found}
        return [StoredFile(each.file_path, each.file_size_in_bytes, each.record_count) for each in map(_file_of, found)]

    def read(self, file: StoredFile, columns: Sequence[str]) -> pa.Table:
        task, metadata = self._tasks[file.path], self._table.metadata
        every = FileScanTask(task.file, task.delete_files, AlwaysTrue())
        schema = self._table.schema()
        rows = ArrowScan(metadata, self._table.io, schema.select(*columns), AlwaysTrue()).to_table([every])
        return pa.Table.from_arrays(
            [rows[name].cast(self.columns.field(name).type) for name in columns], names=list(columns)
        )

    def count(self) -> int:
        return self._table.scan().count()

    def commit(
        self, batch: NumberedBatch, added: pa.Schema, rows: Iterable[pa.Table], replaced: Sequence[StoredFile]
    ) -> None:
        transaction = _Single(self._table)
        if len(added):
            with transaction.update_schema() as update:
                update.union_by_name(added)
        said = {
            "tidemark.delivery": batch.delivery,
            "tidemark.generation": str(batch.generation),
            "tidemark.batch": str(batch.number),
        }
        update_snapshot = transaction.update_snapshot(snapshot_properties=said)
        # Also of a batch without rows: that it follows this snapshot, and no other, is what keeps others out.
        snapshot: Any = update_snapshot.overwrite() if replaced else update_snapshot.merge_append()
        for each in rows:
            for file in _dataframe_to_data_files(transaction.table_metadata, each, self._table.io):
                snapshot.append_data_file(file)
        for gone in replaced:
            snapshot.delete_data_file(self._tasks[gone.path].file)
        snapshot.commit()
        batches = {**self._progress.get("batches", {}), str(batch.generation): batch.number}
        progress = {"identity": self._delivered.identity, "batches": batches}
        transaction.set_properties({self._property: json.dumps(progress)})
        try:
            transaction.commit_transaction()
        except CommitFailedException as error:
            raise MovedMeanwhile from error

    @property
    def _progress(self) -> dict[str, Any]:
        progress: dict[str, Any] = json.loads(self._table.properties.get(self._property, "{}"))
        return progress


def _file_of(task: FileScanTask) -> DataFile:
    return task.file


def _within(bounds: Bounds | None) -> BooleanExpression:
    """The condition that a file may have a row within the bounds, by what its manifest keeps of it."""
    # PyIceberg takes a dot in a name for a field of a struct.
    if bounds is None or "." in bounds.column:
        return AlwaysTrue()
    least, greatest = (
        value.isoformat() if isinstance(value, date) else value for value in (bounds.least, bounds.greatest)
    )
    # Type checkers see the fields of these models, which are not what they are made of.
    at_least: Any = GreaterThanOrEqual
    at_most: Any = LessThanOrEqual
    return And(at_least(bounds.column, least), at_most(bounds.column, greatest))

"""A Delta table as deliveries write it: files by Arrow, and one commit of delta-rs for a batch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from hashlib import blake2b
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import DeltaError
from pyarrow import fs, parquet

from streaming.base import MILLISECOND, SinkError, StoreError
from streaming.sinks.sink import Delivered, NumberedBatch, check_own
from streaming.sinks.table_rows import Bounds
from streaming.sinks.table_sink import MovedMeanwhile, StoredFile, StoredTable, TableSink
from streaming.tables import (
    TaskFile,
    TaskFiles,
    arrow_schema_of,
    can_be_bounded,
    delta,
    files_added,
    named_bounded,
    property_of_bounded,
    read_file,
    s3,
    storage,
)

_CONFIGURATION = {"delta.checkpointInterval": "10"}
_READ_AS_THEY_ARE = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of Delta that change nothing in the files of a table (Delta: PROTOCOL.md, Valid Feature Names)."""
_OF_COLUMNS = ("delta.invariants", "delta.generationExpression", "delta.identity")
_BAD_IN_NAMES = " ,;{}()\n\t="
"""The signs that no column of Delta has in its name where names are not mapped (PROTOCOL.md, Column Mapping)."""
_MOST_FOR_BOUNDS = 32
"""The number of columns whose bounds are kept, as Delta's own writers do."""


class DeltaSink(TableSink):
    """The table at `uri`, on whatever storage lakes lie on."""

    def __init__(self, uri: str, address: str, delivered: Delivered, *, upserts: bool) -> None:
        super().__init__(address, delivered, upserts=upserts)
        self._uri = uri

    def open(self) -> StoredDelta | None:
        table = delta.open_table(self._uri)
        return None if table is None else StoredDelta(table, self._uri, self.address, self._delivered)

    def create(self, columns: pa.Schema) -> StoredDelta:
        _check_names(columns, self.address)
        DeltaTable.create(
            storage.location(self._uri),
            columns,
            mode="ignore",
            description=f"Rows of the delivery {self._delivered.name}.",
            configuration=_CONFIGURATION
            | property_of_bounded(_bounded(columns, self._delivered.key), Schema.from_arrow(columns)),
        )
        return StoredDelta(delta.opened(self._uri), self._uri, self.address, self._delivered)

    @contextmanager
    def telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, DeltaError, pa.ArrowException) as error:
            told = (
                error if isinstance(error, StoreError) or not s3.on_s3(self._uri) else s3.store_error(self._uri, error)
            )
            first, *_ = str(told).strip().splitlines() or [type(error).__name__]
            raise SinkError(
                f"{self.address}: {first.rstrip('.')}. The batch is sent again by itself.", address=self.address
            ) from error


class StoredDelta(StoredTable):
    """An open table of delta-rs."""

    def __init__(self, table: DeltaTable, uri: str, address: str, delivered: Delivered) -> None:
        self._table = table
        self._uri = uri
        self._address = address
        self._delivered = delivered
        self._app = f"tidemark:{delivered.name}"

    @property
    def columns(self) -> pa.Schema:
        return arrow_schema_of(self._table)

    @cached_property
    def _added(self) -> pa.Table:
        return files_added(self._table)

    def check(self, *, upserts: bool) -> None:
        metadata, protocol = self._table.metadata(), self._table.protocol()
        configuration = metadata.configuration
        fields = json.loads(self._table.schema().to_json())["fields"]
        features = {*(protocol.reader_features or ())} - _READ_AS_THEY_ARE
        has: list[str] = []
        if delta.PROPERTY in configuration:
            has.append("is a table of a lake, which only the platform writes")
        if metadata.partition_columns:
            has.append(f"is partitioned by {', '.join(metadata.partition_columns)}")
        if features or protocol.min_reader_version == 2:
            has.append(f"has the features {', '.join(sorted(features)) or 'columnMapping'}")
        has += [f"has the property {name}" for name in configuration if name.startswith("delta.constraints.")]
        has += [
            f"has the column {field['name']!r} with {name}"
            for field in fields
            for name in field["metadata"]
            if name.startswith(_OF_COLUMNS)
        ]
        switched_on = [name for name in ("delta.appendOnly", "delta.enableChangeDataFeed") if upserts]
        has += [f"has the property {name}" for name in switched_on if configuration.get(name) == "true"]
        if has:
            raise SinkError(
                f"{self._address} {', and '.join(has)}, so rows cannot be written to it as they are here. Deliver to "
                "another place; or, where the table may be changed, take that out of it, and the batch is sent again "
                "by itself.",
                address=self._address,
            )

    def newest(self, generation: int) -> int:
        identity = self._table.transaction_version(f"{self._app}/identity")
        if identity is None:
            return -1
        is_own = identity == _number_of(self._delivered.identity)
        own = self._delivered.identity
        check_own(self._delivered, own if is_own else f"not {own}", self._address, "the table", "move the table away")
        batch = self._table.transaction_version(f"{self._app}/{generation}")
        return -1 if batch is None else batch

    def newest_generation(self) -> int:
        generation = self._table.transaction_version(f"{self._app}/generation")
        return -1 if generation is None else generation

    def files(self, bounds: Bounds | None = None) -> Sequence[StoredFile]:
        added = self._added
        paths, sizes = (added.column(name).to_pylist() for name in ("path", "size_bytes"))
        counts = _counts(added)
        misses = [False] * len(paths) if bounds is None else _misses(added, bounds)
        return [
            StoredFile(str(path), int(size), rows)
            for path, size, rows, is_missed in zip(paths, sizes, counts, misses, strict=True)
            if not is_missed
        ]

    def read(self, file: StoredFile, columns: Sequence[str]) -> pa.Table:
        schema = self.columns
        chosen = pa.schema([schema.field(name) for name in columns])
        return read_file(storage.files_of(self._table), unquote(file.path), {}, chosen)

    def count(self) -> int:
        files = storage.files_of(self._table)
        return sum(_rows_in(files, file) if file.rows is None else file.rows for file in self.files())

    def commit(
        self, batch: NumberedBatch, added: pa.Schema, rows: Iterable[pa.Table], replaced: Sequence[StoredFile]
    ) -> None:
        table = self._table
        if len(added):
            _check_names(added, self._address)
            version = table.version()
            fields = json.loads(Schema.from_arrow(added).to_json())["fields"]
            # A commit of its own, before which delta-rs takes in what others have committed.
            table.alter.add_columns([Field.from_json(json.dumps(field)) for field in fields])
            if table.version() != version + 1:
                raise MovedMeanwhile
        looked_at = table.version()

        def fence(newest: DeltaTable) -> None:
            if newest.version() != looked_at:
                raise MovedMeanwhile

        delta.commit_files(
            self._uri,
            [file for each in rows for file in self._write(each)],
            says={
                "delivery": batch.delivery,
                "generation": batch.generation,
                "batch": batch.number,
                "rows": batch.rows.num_rows,
            },
            numbers={
                f"{self._app}/identity": _number_of(self._delivered.identity),
                f"{self._app}/generation": batch.generation,
                f"{self._app}/{batch.generation}": batch.number,
            },
            fence=fence,
            outdated=[file.path for file in replaced],
        )

    def _write(self, rows: pa.Table) -> list[TaskFile]:
        named = named_bounded(self._table)
        bounded = _bounded(rows.schema, self._delivered.key) if named is None else named
        files = TaskFiles(self._uri, rows.schema, bounded)
        for piece in rows.combine_chunks().to_batches():
            files.write(piece)
        return files.close()


def _bounded(columns: pa.Schema, key: Sequence[str]) -> list[str]:
    """The columns whose bounds a new table keeps, those of its key first; no texts but keys, which may be long."""
    kept = [each.name for each in columns if can_be_bounded(each.type) and (each.name in key or not _is_text(each))]
    return sorted(kept, key=lambda name: name not in key)[:_MOST_FOR_BOUNDS]


def _is_text(column: pa.Field) -> bool:
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _rows_in(files: fs.FileSystem, file: StoredFile) -> int:
    with files.open_input_file(unquote(file.path)) as handle:
        return int(parquet.ParquetFile(handle).metadata.num_rows)


def _counts(added: pa.Table) -> list[int | None]:
    """The number of rows of each file, by what the log keeps of it."""
    counts: list[int | None] = [None] * added.num_rows
    return added.column("num_records").to_pylist() if "num_records" in added.schema.names else counts


def _misses(added: pa.Table, bounds: Bounds) -> list[bool]:
    """For each file whether no row of it is within the bounds, by what the log keeps of it."""
    names = [f"{bound}.{bounds.column}" for bound in ("min", "max")]
    if "." in bounds.column or not {*names} <= {*added.schema.names}:
        return [False] * added.num_rows
    least, greatest = (added.column(name) for name in names)
    if pa.types.is_timestamp(greatest.type):
        # Whoever wrote the bound may have cut it off at the millisecond.
        greatest = pc.add(greatest, pa.scalar(MILLISECOND, pa.duration("us")))
    try:
        pairs = zip(least.to_pylist(), greatest.to_pylist(), strict=True)
        return [bounds.misses(*pair) for pair in pairs]
    except (TypeError, OverflowError, ValueError):
        # Bounds of another type than the column has by now, or beyond the years that Python knows.
        return [False] * added.num_rows


def _check_names(columns: pa.Schema, address: str) -> None:
    for name in columns.names:
        bad = next((sign for sign in _BAD_IN_NAMES if sign in name), None)
        if bad is not None:
            raise SinkError(
                f"the column {name!r} has {bad!r} in its name, which Delta takes in none; give it another one in "
                f"`select`, and the batch is sent again to {address} by itself.",
                column=name,
                address=address,
            )


def _number_of(identity: str) -> int:
    """A number that tells deliveries apart, as a transaction of Delta has no text: 63 bits of a digest."""
    return int.from_bytes(blake2b(identity.encode(), digest_size=8).digest()) >> 1

"""Reads any Delta table by its versions: what each commit added, whatever is compacted later."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from streaming.base import EPOCH, MILLISECOND, SourceError, T
from streaming.sources.offsets import OffsetReader, Offsets
from streaming.sources.table.units import batches, open_parquet, open_with_id, origin_fields, read_columns
from streaming.tables import delta, history, storage

VERSION, FILE, SNAPSHOT = "version", "file", "snapshot"
"""The parts of an offset: the next version, how many of its files are taken, and the version that was taken whole."""

NO_SNAPSHOT = -1
"""The snapshot of a query that has taken no version whole, but from one on what each has added."""


_HAS_OFFSET = re.compile(r"(Z|[+-][0-9]{2}:?[0-9]{2})$")


@dataclass(frozen=True)
class VersionFile:
    """A file that a version added: its place among those of the version, and how many rows are before it in these."""

    version: int
    number: int
    path: str
    first_row: int
    rows: int
    written: datetime
    partition: tuple[tuple[str, str | None], ...]


class VersionReader(OffsetReader):
    """Reads the table at `uri`, which has the id `table`: what `start` and later versions have added.

    Without `start` first all that there is when a query begins.
    """

    def __init__(self, uri: str, table: str, columns: T.StructType, rows_per_batch: int, start: int | None) -> None:
        self._uri = uri
        self._table = table
        self._columns = columns
        self._rows_per_batch = rows_per_batch
        self._start = start
        # A version never changes; the footers of its files are read once.
        self._known: dict[tuple[int, bool], list[VersionFile]] = {}

    @property
    def schema(self) -> T.StructType:
        """The origin, and the row itself as `payload`."""
        return T.StructType([*origin_fields(), T.StructField("payload", self._columns)])

    @property
    def rows_per_batch(self) -> int:
        return self._rows_per_batch

    def first(self) -> Offsets:
        if self._start is not None:
            return {SNAPSHOT: NO_SNAPSHOT, VERSION: self._start, FILE: 0}
        version = open_with_id(self._uri, self._table).version()
        return {SNAPSHOT: version, VERSION: version, FILE: 0}

    def newest(self, begins: Offsets) -> Offsets:
        newest = self._behind(begins, open_with_id(self._uri, self._table).version() + 1)
        # What cannot be followed is told before a batch of it is planned. Versions without rows are passed as well:
        # the table forgets them in time, and from one that is forgotten nobody could go on.
        next(self.files(begins, newest), None)
        return newest

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        taken = 0
        last: VersionFile | None = None
        for file in self.files(begins, newest):
            taken += file.rows
            if last is not None and taken > rows:
                whole = file.version > last.version
                place = {VERSION: last.version + 1, FILE: 0} if whole else {VERSION: last.version, FILE: file.number}
                return {SNAPSHOT: begins[SNAPSHOT], **place}
            last = file
        return newest

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[VersionFile]:
        return list(self.files(begins, ends))

    def files(self, begins: Offsets, ends: Offsets) -> Iterator[VersionFile]:
        """The files between two offsets, in order.

        Raises:
            SourceError: a version has removed rows, or nobody can tell any more what it added.
        """
        # A query that died over its first batch asks anew where it begins, and its plan says where that was.
        if begins[SNAPSHOT] != ends[SNAPSHOT]:
            begins = {SNAPSHOT: ends[SNAPSHOT], VERSION: ends[SNAPSHOT], FILE: 0}
        table = open_with_id(self._uri, self._table)
        self._known = {asked: files for asked, files in self._known.items() if asked[0] >= begins[VERSION]}
        for version in range(begins[VERSION], ends[VERSION] + 1):
            first = begins[FILE] if version == begins[VERSION] else 0
            limit = ends[FILE] if version == ends[VERSION] else None
            if limit == 0:
                continue
            asked = (version, version == ends[SNAPSHOT])
            if asked not in self._known:
                self._known[asked] = self._files_of(table, *asked)
            yield from self._known[asked][first:limit]

    def read(self, piece: VersionFile) -> Iterator[pa.RecordBatch]:
        files = storage.files_of(open_with_id(self._uri, self._table))
        values = dict(piece.partition)
        stored = [name for name in self._columns.names if name not in values]
        rows = read_columns(files, piece.path, stored)
        for name in values:
            if name in self._columns.names:
                value = _partition_value(values[name], self._columns[name].dataType)
                rows = rows.append_column(name, pa.array([value] * piece.rows, pa.string()))
        end = piece.first_row + piece.rows
        origin = {
            "table": pa.array([self._table] * piece.rows, pa.string()),
            "unit": pa.array([piece.version] * piece.rows, pa.int64()),
            "position": pa.array(range(piece.first_row, end), pa.int64()),
            "written": pa.array([piece.written] * piece.rows, pa.timestamp("us", "UTC")),
            "at": pa.nulls(piece.rows, pa.timestamp("us", "UTC")),
        }
        payload = rows.select(self._columns.names).to_struct_array()
        yield from batches(self.schema, {**origin, "payload": payload})

    @staticmethod
    def _behind(begins: Offsets, version: int) -> Offsets:
        return {SNAPSHOT: begins[SNAPSHOT], VERSION: version, FILE: 0}

    def _files_of(self, table: DeltaTable, version: int, whole: bool) -> list[VersionFile]:
        """The files that a version added, in the order of their paths; `whole`: all that there are at it."""
        actions = history.actions_of(table, version)
        if whole:
            added = _listed(self._uri, version)
        elif actions is None:
            raise SourceError(
                f"version {version} of the table {self._uri!r} was cleaned away before it was read: {_TOO_LATE}"
            )
        else:
            added = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
            removed = [action for action in actions if action.get("remove", {}).get("dataChange")]
            if removed:
                raise SourceError(
                    f"version {version} of the table {self._uri!r} removed or changed rows that may be in the log, in "
                    f"{len(removed)} files. A stream follows a table that only grows: take the changes from a table of "
                    "changes, or begin a new stream from the table as it is now."
                )
        written = written_at(actions)
        return self._numbered(table, version, added, written)

    def _numbered(
        self, table: DeltaTable, version: int, added: list[dict[str, Any]], written: datetime | None
    ) -> list[VersionFile]:
        files, first_row = [], 0
        for number, action in enumerate(sorted(added, key=lambda action: str(action["path"]))):
            if action.get("deletionVector"):
                raise SourceError(
                    f"the table {self._uri!r} has deletion vectors, which are not read here; rewrite it without, by "
                    "REORG TABLE ... APPLY (PURGE), and turn delta.enableDeletionVectors off."
                )
            path = unquote(action["path"])
            rows = _rows_in(table, self._uri, version, path)
            since = EPOCH + action["modificationTime"] * MILLISECOND if written is None else written
            partition = tuple(sorted((action.get("partitionValues") or {}).items()))
            files.append(VersionFile(version, number, path, first_row, rows, since, partition))
            first_row += rows
        return files


def _partition_value(text: str | None, type_: T.DataType) -> str | None:
    """The text of a partition as Arrow reads it: nothing stands for null, and a bare instant is one of UTC."""
    if text and isinstance(type_, T.TimestampType) and not _HAS_OFFSET.search(text):
        return f"{text}Z"
    return text or None


_TOO_LATE = (
    "the stream was away for longer than the table keeps its history. Begin a new stream from the table as it is now, "
    "or restore the files from a backup; a longer delta.deletedFileRetentionDuration leaves more time."
)


def _listed(uri: str, version: int) -> list[dict[str, Any]]:
    try:
        actions = delta.opened(uri, version).get_add_actions()
    except Exception as error:
        raise SourceError(f"version {version} of the table {uri!r} cannot be read any more: {_TOO_LATE}") from error
    names = {"path": "path", "modificationTime": "modification_time", "partitionValues": "partition"}
    there = {ours: theirs for ours, theirs in names.items() if theirs in actions.schema.names}
    columns = {ours: actions[theirs].to_pylist() for ours, theirs in there.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for row in rows:
        if isinstance(row["modificationTime"], datetime):
            row["modificationTime"] = (row["modificationTime"] - EPOCH) // MILLISECOND
        given = row.get("partitionValues") or {}
        row["partitionValues"] = {name: None if value is None else str(value) for name, value in given.items()}
    return rows


def _rows_in(table: DeltaTable, uri: str, version: int, path: str) -> int:
    try:
        with open_parquet(storage.files_of(table), path) as file:
            return int(file.metadata.num_rows)
    except FileNotFoundError as error:
        raise SourceError(
            f"the file {path} of version {version} of the table {uri!r} was deleted before it was read: {_TOO_LATE}"
        ) from error


def written_at(actions: list[dict[str, Any]] | None) -> datetime | None:
    """When a version was committed, as its `actions` tell; None where they do not."""
    times = [action["commitInfo"].get("timestamp") for action in actions or () if "commitInfo" in action]
    return EPOCH + times[0] * MILLISECOND if times and times[0] is not None else None

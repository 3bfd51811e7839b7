"""Files in folders by date or hour: each batch becomes files that are put whole, under names made from its number."""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming.base import DeclarationError, SinkError, check_type
from streaming.lake import Lake
from streaming.sinks.encoding import flat, json_objects, parts
from streaming.sinks.sink import TIME, Delivered, Guarantee, NumberedBatch, PutAside, Sink, Target
from streaming.tables import storage

Buckets = Literal["date", "hour", "none"]
_FOLDERS: dict[Buckets, str] = {"date": "%Y-%m-%d", "hour": "%Y-%m-%d--%H", "none": ""}
_NO_TIME = "unknown"


@dataclass(frozen=True)
class FileTarget(Target):
    """Files below `path`, which is relative to the lake's root unless it is absolute or a URI.

    A row goes into the folder of its time: `by="date"` (`2026-01-31`), `"hour"` (`2026-01-31--23`) or `"none"`, in UTC,
    by event time or the start of its window, or by the timestamp column `time` of what is selected. A file is called
    `<prefix><delivery>-<generation>-<batch>-<part><suffix>`; a batch gives a further part where one has more than
    `bytes_per_file`, which is looked at before each row. Files are written under a hidden name, then moved.

    `_delivered/<delivery>.json` below `path` names the newest batch that is there whole.

    Raises:
        DeclarationError: there is no such bucket, or a bound below 1.
    """

    path: str
    by: Buckets = "date"
    prefix: str = ""
    suffix: str = ""
    bytes_per_file: int = 128 * 2**20
    time: str | None = None

    kind: ClassVar[str] = "file"
    guarantee: ClassVar[Guarantee] = "exactly once"
    batch = 100_000

    def __post_init__(self) -> None:
        check_type("path of the files", self.path, str, "a folder, such as 'exports/orders'")
        if self.by not in _FOLDERS:
            raise DeclarationError(f"by={self.by!r} is no way to sort files into folders; use {', '.join(_FOLDERS)}.")
        if self.bytes_per_file < 1:
            raise DeclarationError(f"bytes_per_file={self.bytes_per_file!r} holds no row; use 1 or more.")
        for name in (self.prefix, self.suffix):
            if "/" in name or (name.startswith(("_", ".")) and name is self.prefix):
                raise DeclarationError(
                    f"{name!r} cannot be part of a file's name: readers pass over names that begin with '.' or '_', "
                    "and '/' ends a folder. Rename it."
                )

    @property
    def address(self) -> str:
        """The folder."""
        return self.path

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """The folder, which is made with the first file."""
        return _FileSink(self, lake.path(self.path), delivered)

    @abstractmethod
    def encode(self, rows: pa.Table) -> Iterator[bytes]:
        """The content of each file for rows of one folder, in order."""

    @abstractmethod
    def rows_in(self, content: bytes) -> int:
        """How many rows a file holds."""


@dataclass(frozen=True)
class JsonLines(FileTarget):
    """A JSON object a line, UTF-8."""

    suffix: str = ".json"
    kind: ClassVar[str] = "json"

    def encode(self, rows: pa.Table) -> Iterator[bytes]:
        """Lines, cut before the first row that finds the file larger than its bound."""
        lines: list[bytes] = []
        size = 0
        for line in json_objects(rows):
            if lines and size > self.bytes_per_file:
                yield b"".join(lines)
                lines, size = [], 0
            lines.append(line + b"\n")
            size += len(line) + 1
        if lines:
            yield b"".join(lines)

    def rows_in(self, content: bytes) -> int:
        """The lines."""
        return content.count(b"\n")


@dataclass(frozen=True)
class CsvFiles(FileTarget):
    """Comma-separated values (RFC 4180) with a line of names; lists and structs are JSON, null is empty."""

    suffix: str = ".csv"
    kind: ClassVar[str] = "csv"

    def encode(self, rows: pa.Table) -> Iterator[bytes]:
        """Lines below the names, in files of about the same number of rows."""
        for part in parts(flat(rows), self.bytes_per_file):
            sink = io.BytesIO()
            pyarrow.csv.write_csv(part, sink)
            yield sink.getvalue()

    def rows_in(self, content: bytes) -> int:
        """The rows below the names; a quoted value may hold line breaks."""
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return int(pyarrow.csv.read_csv(io.BytesIO(content), parse_options=options).num_rows)


@dataclass(frozen=True)
class ParquetFiles(FileTarget):
    """Parquet, compressed with zstd."""

    suffix: str = ".parquet"
    kind: ClassVar[str] = "parquet"

    def encode(self, rows: pa.Table) -> Iterator[bytes]:
        """Files whose rows take about the bound in memory, hence less on disk."""
        for part in parts(rows, self.bytes_per_file):
            sink = io.BytesIO()
            pq.write_table(part, sink, compression="zstd")
            yield sink.getvalue()

    def rows_in(self, content: bytes) -> int:
        """As its footer tells."""
        return int(pq.ParquetFile(io.BytesIO(content)).metadata.num_rows)


class _FileSink(Sink):
    """Names follow from the batch alone, so that putting a batch again replaces its files by the same."""

    def __init__(self, target: FileTarget, root: str, delivered: Delivered) -> None:
        self._target = target
        self._root = root.rstrip("/")
        self._name = delivered.name.replace("/", "-")
        self._may_repeat = True

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        rows = batch.messages
        put_aside([])
        try:
            put: set[str] = set()
            for folder, positions in self._folders(batch):
                contents = self._target.encode(rows.take(pa.array(positions, pa.int64())))
                for part, content in enumerate(contents):
                    file = f"{folder}/{self._file(batch, part)}".lstrip("/")
                    storage.put_whole(f"{self._root}/{file}", content)
                    put.add(file)
            self._remove_others(batch, put)
            self._tell(batch)
        except OSError as error:
            raise SinkError(
                f"the files of batch {batch.key} cannot be put below {self._root!r}: {error}. Free space or give the "
                "permission back; they are put again by themselves."
            ) from error

    def count(self) -> int:
        """Rows in all files of this delivery, each of which is read."""
        files = self._files(f"{self._name}-")
        return sum(self._target.rows_in(storage.read_bytes(f"{self._root}/{path}") or b"") for path in files)

    def _files(self, begin: str) -> Iterator[str]:
        """Those whose names begin so after the prefix, relative to the root."""
        for path, info in storage.walked(self._root, lambda name: not name.startswith((".", "_"))):
            name = info.base_name
            if name.startswith(f"{self._target.prefix}{begin}") and name.endswith(self._target.suffix):
                yield path

    def _remove_others(self, batch: NumberedBatch, put: set[str]) -> None:
        """Files of an attempt at the batch that cut it otherwise; only the first of a process may be repeated."""
        if self._may_repeat:
            for path in {*self._files(f"{self._name}-{batch.generation}-{batch.number:010}-")} - put:
                storage.remove(f"{self._root}/{path}")
        self._may_repeat = False

    @property
    def _progress(self) -> str:
        return f"{self._root}/_delivered/{self._name}.json"

    def _told(self) -> dict[str, Any]:
        return dict(json.loads(storage.read_text(self._progress) or "{}"))

    def _tell(self, batch: NumberedBatch) -> None:
        """Readers who want whole batches only go by this; a process that slept never takes it back."""
        told, done = self._told(), {"generation": batch.generation, "batch": batch.number}
        if (told.get("generation", -1), told.get("batch", -1)) < (batch.generation, batch.number):
            storage.put_whole(self._progress, json.dumps(done).encode())

    def _file(self, batch: NumberedBatch, part: int) -> str:
        # Padded, so that names sort as batches do.
        return f"{self._target.prefix}{self._name}-{batch.generation}-{batch.number:010}-{part}{self._target.suffix}"

    def _folders(self, batch: NumberedBatch) -> Sequence[tuple[str, list[int]]]:
        """The folder of each row, with the positions of its rows in order."""
        folders: dict[str, list[int]] = {}
        for position, instant in enumerate(self._times(batch).to_pylist()):
            folders.setdefault(self._folder(instant), []).append(position)
        return list(folders.items())

    def _times(self, batch: NumberedBatch) -> pa.ChunkedArray:
        name = self._target.time or TIME
        if name not in batch.rows.column_names or not pa.types.is_timestamp(batch.rows[name].type):
            columns = ", ".join(batch.selected.column_names)
            raise SinkError(
                f"the files below {self._target.path!r} are sorted by {name!r}, which is no timestamp column of what "
                f"is delivered; there are: {columns}. Select it, or leave `time` out."
            )
        return batch.rows[name]

    def _folder(self, instant: datetime | None) -> str:
        pattern = _FOLDERS[self._target.by]
        if not pattern:
            return ""
        if instant is None:
            return _NO_TIME
        return (instant if instant.tzinfo is None else instant.astimezone(UTC)).strftime(pattern)

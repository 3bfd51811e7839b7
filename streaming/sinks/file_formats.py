"""Rows as the content of a file, and back: JSON lines, CSV or Parquet."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming.sinks.encoding import csv_table, json_objects, parts


class FileFormat(ABC):
    """Rows as the content of files."""

    suffix: str
    """The end of the names of such files, unless somebody says otherwise."""

    @abstractmethod
    def encode(self, rows: pa.Table, most_bytes: int) -> Iterator[bytes]:
        """The content of each file, in order; none where there is no row."""

    @abstractmethod
    def rows_in(self, content: bytes) -> int:
        """The number of rows that a file holds."""

    @abstractmethod
    def records(self, content: bytes) -> Iterator[bytes]:
        """The rows of a file, each as bytes that are the same for the same row, for an audit."""


class _JsonLines(FileFormat):
    suffix = ".json"

    def encode(self, rows: pa.Table, most_bytes: int) -> Iterator[bytes]:
        """Lines, cut before the first row that finds the file larger than its bound."""
        lines: list[bytes] = []
        size = 0
        for line in json_objects(rows):
            if lines and size > most_bytes:
                yield b"".join(lines)
                lines, size = [], 0
            lines.append(line + b"\n")
            size += len(line) + 1
        if lines:
            yield b"".join(lines)

    def rows_in(self, content: bytes) -> int:
        return content.count(b"\n")

    def records(self, content: bytes) -> Iterator[bytes]:
        yield from content.split(b"\n")[:-1]


class _Csv(FileFormat):
    suffix = ".csv"

    def encode(self, rows: pa.Table, most_bytes: int) -> Iterator[bytes]:
        """Lines below the names, in files of about the same number of rows."""
        for part in parts(csv_table(rows), most_bytes):
            sink = io.BytesIO()
            pyarrow.csv.write_csv(part, sink)
            yield sink.getvalue()

    def rows_in(self, content: bytes) -> int:
        """The rows below the names; a quoted value may hold line breaks."""
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        return int(pyarrow.csv.read_csv(io.BytesIO(content), parse_options=options).num_rows)

    def records(self, content: bytes) -> Iterator[bytes]:
        lines = csv.reader(io.StringIO(content.decode(), newline=""))
        next(lines, None)
        for line in lines:
            yield repr(line).encode()


class _Parquet(FileFormat):
    suffix = ".parquet"

    def encode(self, rows: pa.Table, most_bytes: int) -> Iterator[bytes]:
        """Files whose rows take about the bound in memory, hence less on disk."""
        for part in parts(rows, most_bytes):
            sink = io.BytesIO()
            pq.write_table(part, sink, compression="zstd")
            yield sink.getvalue()

    def rows_in(self, content: bytes) -> int:
        """As its footer tells."""
        return int(pq.ParquetFile(io.BytesIO(content)).metadata.num_rows)

    def records(self, content: bytes) -> Iterator[bytes]:
        yield from json_objects(pq.read_table(io.BytesIO(content)))


JSON_LINES: FileFormat = _JsonLines()
CSV: FileFormat = _Csv()
PARQUET: FileFormat = _Parquet()

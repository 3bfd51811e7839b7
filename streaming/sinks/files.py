"""Files in folders by date or hour: each batch becomes files that are put whole, under names made from its number."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from streaming.base import check_type
from streaming.lake import Lake
from streaming.sinks.file_formats import CSV, JSON_LINES, PARQUET, FileFormat
from streaming.sinks.file_layout import Buckets, FileLayout
from streaming.sinks.file_sink import FileSink
from streaming.sinks.places import Folder, Place
from streaming.sinks.sink import Delivered, Guarantee, Sink, Target


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
        _ = self.layout

    @property
    def address(self) -> str:
        """The folder."""
        return self.path

    @property
    @abstractmethod
    def file_format(self) -> FileFormat:
        """The format of the files."""

    @property
    def layout(self) -> FileLayout:
        """Folders and names.

        Raises:
            DeclarationError: as the target itself.
        """
        suffix = self.suffix or self.file_format.suffix
        return FileLayout(self.file_format, self.by, self.prefix, suffix, self.bytes_per_file, self.time)

    def place(self, lake: Lake) -> Place:
        """Where the files lie."""
        return Folder(lake.path(self.path))

    def connect(self, lake: Lake, delivered: Delivered) -> Sink:
        """The place, which is made with the first file where it is a folder."""
        return FileSink(self.layout, self.place(lake), delivered)


@dataclass(frozen=True)
class JsonLines(FileTarget):
    """A JSON object a line, UTF-8."""

    suffix: str = ".json"
    kind: ClassVar[str] = "json"

    @property
    def file_format(self) -> FileFormat:
        """JSON lines."""
        return JSON_LINES


@dataclass(frozen=True)
class CsvFiles(FileTarget):
    """Comma-separated values (RFC 4180) with a line of names; lists, structs and maps are JSON.

    Null is nothing, an empty text is `""`; in a file of a single column, where nothing would be no line, both are `""`.
    """

    suffix: str = ".csv"
    kind: ClassVar[str] = "csv"

    @property
    def file_format(self) -> FileFormat:
        """Lines below a line of names."""
        return CSV


@dataclass(frozen=True)
class ParquetFiles(FileTarget):
    """Parquet, compressed with zstd."""

    suffix: str = ".parquet"
    kind: ClassVar[str] = "parquet"

    @property
    def file_format(self) -> FileFormat:
        """Parquet with zstd."""
        return PARQUET

"""Files in folders by date or hour: each batch becomes files that are put whole, under names made from its number."""

from __future__ import annotations

import csv
import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from streaming.base import Dataset, DeclarationError, SinkError, check_type, dataset_at
from streaming.lake import Lake
from streaming.sinks.encoding import csv_table, json_objects, parts, plain_texts
from streaming.sinks.sink import (
    TIME,
    Checksum,
    Comparison,
    Delivered,
    Guarantee,
    NumberedBatch,
    PutAside,
    Sink,
    Target,
    check_own,
)
from streaming.tables import storage

_HIDDEN = ("_", ".")
Buckets = Literal["date", "hour", "none"]
_BUCKETS = get_args(Buckets)
_NO_TIME = "unknown"


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


@dataclass(frozen=True)
class FileLayout:
    """Folders by `date`, `hour` or `none` of a timestamp column (`time`; None: that of the row), in UTC, and files.

    A file is called `<prefix><delivery>-<generation>-<batch>-<part><suffix>`. A part has at most `bytes_per_file`,
    which is looked at before each row.

    Raises:
        DeclarationError: there is no such bucket, a bound below 1, or a name that readers pass over.
    """

    format: FileFormat
    by: Buckets
    prefix: str
    suffix: str
    bytes_per_file: int
    time: str | None

    def __post_init__(self) -> None:
        if self.by not in _BUCKETS:
            raise DeclarationError(f"by={self.by!r} is no way to sort files into folders; use {', '.join(_BUCKETS)}.")
        if self.bytes_per_file < 1:
            raise DeclarationError(f"bytes_per_file={self.bytes_per_file!r} holds no row; use 1 or more.")
        for name in (self.prefix, self.suffix):
            if "/" in name or (name.startswith(("_", ".")) and name is self.prefix):
                raise DeclarationError(
                    f"{name!r} cannot be part of a file's name: readers pass over names that begin with '.' or '_', "
                    "and '/' ends a folder. Rename it."
                )

    def files(self, batch: NumberedBatch, delivery: str) -> Iterator[tuple[str, bytes]]:
        """Name and content of each file, relative to where all of them lie; `delivery` names it within a file's name.

        Raises:
            SinkError: the column of the time is not delivered.
        """
        rows = batch.messages
        for folder, positions in self.folders(batch):
            taken = rows.take(pa.array(positions, pa.int64()))
            for part, content in enumerate(self.format.encode(taken, self.bytes_per_file)):
                yield self.file(folder, delivery, batch, part), content

    def file(self, folder: str, delivery: str, batch: NumberedBatch, part: int) -> str:
        """The name of a part of the batch in a folder."""
        # Padded, so that names sort as batches do.
        name = f"{self.begin(delivery, batch.generation)}{batch.number:010}-{part}{self.suffix}"
        return f"{folder}/{name}".lstrip("/")

    def begin(self, delivery: str, generation: int | None = None) -> str:
        """The beginning of all names of a delivery, or of those of one generation."""
        return f"{self.prefix}{delivery}-" + ("" if generation is None else f"{generation}-")

    def folders(self, batch: NumberedBatch) -> Sequence[tuple[str, list[int]]]:
        """The folder of each row, with the positions of its rows in order.

        Raises:
            SinkError: the column of the time is not delivered.
        """
        folders: dict[str, list[int]] = {}
        for position, instant in enumerate(plain_texts(self._times(batch))):
            folders.setdefault(self._folder(instant), []).append(position)
        return list(folders.items())

    def _times(self, batch: NumberedBatch) -> pa.ChunkedArray:
        name = self.time or TIME
        if name not in batch.rows.column_names or not pa.types.is_timestamp(batch.rows[name].type):
            columns = ", ".join(batch.selected.column_names)
            raise SinkError(
                f"the files are to be sorted by {name!r}, which is no timestamp column of what is delivered; there "
                f"are: {columns}. Select it, or leave `time` out."
            )
        return batch.rows[name]

    def _folder(self, instant: str | None) -> str:
        if self.by == "none":
            return ""
        if instant is None:
            return _NO_TIME
        day, _, time_of_day = instant.partition("T")
        return day if self.by == "date" else f"{day}--{time_of_day[:2]}"


class Place(ABC):
    """Where whole files lie, under names relative to it; every method raises OSError or SinkError where it is away."""

    address: str

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Put a file in place whole, as whoever lists its folder sees it."""

    @abstractmethod
    def read(self, path: str) -> bytes | None:
        """The content of a file; None where there is none."""

    @abstractmethod
    def remove(self, paths: Collection[str]) -> None:
        """Take files away, as far as they are there."""

    @abstractmethod
    def paths(self) -> Iterator[str]:
        """The files that readers see, which pass over names that begin with `.` or `_`."""


class Folder(Place):
    """A folder on any storage that Arrow knows; it is made with the first file."""

    def __init__(self, root: str) -> None:
        self.address = root.rstrip("/")

    def put(self, path: str, content: bytes) -> None:
        storage.put_whole(f"{self.address}/{path}", content)

    def read(self, path: str) -> bytes | None:
        return storage.read_bytes(f"{self.address}/{path}")

    def remove(self, paths: Collection[str]) -> None:
        for path in paths:
            storage.remove(f"{self.address}/{path}")

    def paths(self) -> Iterator[str]:
        for path, _ in storage.walked(self.address, lambda name: not name.startswith(_HIDDEN)):
            yield path


class Attempts:
    """The files of the batch that is being put, written down beforehand, so that none is left of one given up.

    An attempt that died may have cut the batch into other files, of an older declaration, or may never be made again,
    because somebody began the delivery anew.
    """

    def __init__(self, place: Place, delivery: str) -> None:
        self._place = place
        self._path = f"_delivered/{delivery}.putting.json"
        self._may_repeat = True

    def begin(self, batch: NumberedBatch, files: Collection[str], whole: Callable[[], tuple[int, int]]) -> None:
        """Note the files of a batch, and remove what an attempt before this process left and nobody will finish.

        `whole` gives generation and number of the newest batch that is known to be there whole.
        """
        if self._may_repeat:
            self._place.remove({*self._left(batch, whole())} - {*files})
        self._may_repeat = False
        noted = {"generation": batch.generation, "batch": batch.number, "files": sorted(files)}
        self._place.put(self._path, json.dumps(noted).encode())

    def _left(self, batch: NumberedBatch, whole: tuple[int, int]) -> list[str]:
        noted = json.loads(self._place.read(self._path) or b"{}")
        attempted, now = (noted.get("generation", -1), noted.get("batch", -1)), (batch.generation, batch.number)
        # What comes after this batch is of another process, which has taken over.
        is_given_up = attempted == now or whole < attempted < now
        return list(noted["files"]) if noted and is_given_up else []


class FileSink(Sink):
    """Names follow from the batch alone, so that putting a batch again replaces its files by the same."""

    def __init__(self, layout: FileLayout, place: Place, delivered: Delivered) -> None:
        self._layout = layout
        self._place = place
        self._name = file_name_of(delivered)
        self._delivered = delivered
        self._attempts = Attempts(place, self._name)
        self._is_own = False

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        put_aside([])
        try:
            self._check_own()
            files = dict(self._layout.files(batch, self._name))
            self._attempts.begin(batch, files, self._whole)
            for path, content in files.items():
                self._place.put(path, content)
            self._tell(batch)
        except OSError as error:
            raise SinkError(
                f"the files of batch {batch.key} cannot be put below {self._place.address!r}: {error}. Free space or "
                "give the permission back; they are put again by themselves."
            ) from error

    def count(self) -> int:
        """Rows in all files of this delivery, each of which is read."""
        return sum(
            self._layout.format.rows_in(content) for _, content in self._contents(self._layout.begin(self._name))
        )

    def compare(self, generation: int, expected: Iterable[pa.Table]) -> Comparison:
        """By folder, in those files of the generation that are there."""
        layout, should, there = self._layout, Checksum.by_name(), Checksum.by_name()
        for rows in expected:
            batch = NumberedBatch(self._delivered.name, generation, 0, rows)
            for folder, positions in layout.folders(batch):
                taken = batch.messages.take(pa.array(positions, pa.int64()))
                for content in layout.format.encode(taken, layout.bytes_per_file):
                    should[folder].add(layout.format.records(content))
        for path, content in self._contents(layout.begin(self._name, generation)):
            there[path.rpartition("/")[0]].add(layout.format.records(content))
        return Comparison.of_folders(should, there)

    def _contents(self, begin: str) -> Iterator[tuple[str, bytes]]:
        """Path and content of each file whose name begins so."""
        for path in self._place.paths():
            name = path.rpartition("/")[2]
            if name.startswith(begin) and name.endswith(self._layout.suffix):
                yield path, self._place.read(path) or b""

    @property
    def _progress(self) -> str:
        return f"_delivered/{self._name}.json"

    def _told(self) -> dict[str, Any]:
        return dict(json.loads(self._place.read(self._progress) or b"{}"))

    def _check_own(self) -> None:
        """Refuse files of another delivery under the same names; an earlier release does not say whose they are.

        Raises:
            ProgressError: with the ways out.
        """
        if not self._is_own:
            identity = self._told().get("identity", self._delivered.identity)
            files = f"the file {self._progress!r}, and the files that begin with {self._layout.begin(self._name)!r}"
            check_own(self._delivered, identity, self._place.address, "the folder", f"move away {files}")
        self._is_own = True

    def _whole(self) -> tuple[int, int]:
        progress = self._told()
        return progress.get("generation", -1), progress.get("batch", -1)

    def _tell(self, batch: NumberedBatch) -> None:
        """Readers who want whole batches only go by this; a process that slept never takes it back."""
        if self._whole() < (batch.generation, batch.number):
            done = {"generation": batch.generation, "batch": batch.number, "identity": self._delivered.identity}
            self._place.put(self._progress, json.dumps(done).encode())


def file_name_of(delivered: Delivered) -> str:
    """The name of the delivery as part of a file's name."""
    return delivered.name.replace("/", "-")


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

    def datasets(self, lake: Lake) -> tuple[Dataset, ...]:
        """The folder."""
        here = dataset_at(lake.path(self.path))
        return () if here is None else (here,)

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

"""The layout of a batch's rows in files: folders by their time, and names that follow from the batch alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa

from streaming.base import DeclarationError, SinkError
from streaming.sinks.encoding import plain_texts
from streaming.sinks.file_formats import FileFormat
from streaming.sinks.sink import TIME, NumberedBatch

Buckets = Literal["date", "hour", "none"]
_BUCKETS = get_args(Buckets)
_NO_TIME = "unknown"


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

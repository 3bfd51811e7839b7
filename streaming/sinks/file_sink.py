"""Puts batches as whole files, into folders or into an object store."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa

from streaming.base import SinkError
from streaming.sinks.comparison import Checksum, Comparison
from streaming.sinks.file_layout import FileLayout
from streaming.sinks.sink import Delivered, NumberedBatch, PutAside, Sink
from streaming.tables import storage

_HIDDEN = ("_", ".")


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

    def delivered_through(self, generation: int) -> None:
        return None

    def deliver(self, batch: NumberedBatch, put_aside: PutAside) -> None:
        put_aside([])
        try:
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

    def _whole(self) -> tuple[int, int]:
        progress: dict[str, Any] = json.loads(self._place.read(self._progress) or b"{}")
        return progress.get("generation", -1), progress.get("batch", -1)

    def _tell(self, batch: NumberedBatch) -> None:
        """Readers who want whole batches only go by this; a process that slept never takes it back."""
        if self._whole() < (batch.generation, batch.number):
            done = {"generation": batch.generation, "batch": batch.number}
            self._place.put(self._progress, json.dumps(done).encode())


def file_name_of(delivered: Delivered) -> str:
    """The name of the delivery as part of a file's name."""
    return delivered.name.replace("/", "-")

"""Puts batches as whole files, into folders or into an object store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from streaming.base import SinkError
from streaming.sinks.attempts import Attempts
from streaming.sinks.comparison import Checksum, Comparison
from streaming.sinks.file_layout import FileLayout
from streaming.sinks.places import Place
from streaming.sinks.sink import Delivered, NumberedBatch, PutAside, Sink


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

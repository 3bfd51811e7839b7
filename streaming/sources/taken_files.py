"""Which files the batches of a query took, from the log that Spark's file source keeps in its checkpoint."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Sequence
from hashlib import blake2b

import numpy as np

from streaming.spark import TakenFile, newest_compaction, taken_entry


class TakenFiles:
    """The files taken so far, by their path relative to the landing folder.

    Sixteen bytes are kept of each, a digest of its name and its modification time: a name counts for ever, since Spark
    takes no name twice, and a stream takes millions of files.
    """

    def __init__(self, landing: str, checkpoint: str) -> None:
        self._landing = landing
        self._checkpoint = checkpoint
        self._next = 0
        self._read = -1
        self._digests = np.empty(0, np.uint64)
        self._modified = np.empty(0, np.int64)

    def read_on(self) -> None:
        """Take note of what was taken since the last call."""
        if self._next == 0:
            self._next = newest_compaction(self._checkpoint) or 0
        while True:
            entry = taken_entry(self._checkpoint, self._next, self._read)
            if entry is not None:
                self._add(entry)
                self._read = self._next
                self._next += 1
                continue
            # Old entries are deleted; the newest compaction repeats them.
            newest = newest_compaction(self._checkpoint)
            if newest is None or newest < self._next:
                return
            self._next = newest

    def modified(self, names: Sequence[str]) -> list[int | None]:
        """When each of the files was modified as it was taken, in milliseconds since the epoch; None if it was not."""
        digests = np.frombuffer(b"".join(map(_digest, names)), np.uint64)
        places = np.searchsorted(self._digests, digests)
        there = np.append(self._digests, np.uint64(0))[places] == digests
        there &= places < len(self._digests)
        return [
            int(self._modified[place]) if taken else None
            for place, taken in zip(places.tolist(), there.tolist(), strict=True)
        ]

    def _add(self, files: Iterable[TakenFile]) -> None:
        digests, modified = bytearray(), array("q")
        for file in files:
            digests += _digest(relative_path(file.path, self._landing))
            modified.append(file.modified)
        together = np.concatenate([self._digests, np.frombuffer(digests, np.uint64)])
        self._digests, kept = np.unique(together, return_index=True)
        self._modified = np.concatenate([self._modified, np.frombuffer(modified, np.int64)])[kept]


def relative_path(uri: str, landing: str) -> str:
    """The path of a file below the landing folder; Spark writes `file:///a` where the folder is declared as `/a`."""
    return path_of(uri).removeprefix(f"{path_of(landing)}/")


def path_of(uri: str) -> str:
    """The path of a path or URI, the same however it is written."""
    scheme, separator, rest = uri.partition("://")
    path = f"/{rest.partition('/')[2]}" if separator else scheme.removeprefix("file:")
    return re.sub("/+", "/", path).rstrip("/")


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()

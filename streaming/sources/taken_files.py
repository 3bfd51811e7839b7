"""Which files the batches of a query took, from the log that Spark's file source keeps in its checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence
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
        self._digests = np.empty(0, np.uint64)
        self._modified = np.empty(0, np.int64)

    def read_on(self) -> None:
        """Take note of what was taken since the last call."""
        if self._next == 0:
            self._next = newest_compaction(self._checkpoint) or 0
        while True:
            entry = taken_entry(self._checkpoint, self._next)
            if entry is not None:
                self._add(entry)
                self._next += 1
                continue
            # Old entries are deleted; the newest compaction repeats them.
            newest = newest_compaction(self._checkpoint)
            if newest is None or newest < self._next:
                return
            self._next = newest

    def modified(self, names: Sequence[str]) -> list[int | None]:
        """When each of the files was modified as it was taken, in milliseconds since the epoch; None if it was not."""
        digests = _digests(names)
        places = np.searchsorted(self._digests, digests)
        there = np.append(self._digests, np.uint64(0))[places] == digests
        there &= places < len(self._digests)
        return [
            int(self._modified[place]) if taken else None
            for place, taken in zip(places.tolist(), there.tolist(), strict=True)
        ]

    def _add(self, files: Sequence[TakenFile]) -> None:
        digests = np.concatenate([self._digests, _digests([relative_path(file.path, self._landing) for file in files])])
        modified = np.concatenate([self._modified, np.array([file.modified for file in files], np.int64)])
        # Sorted, each once: a compaction repeats what came before it.
        self._digests, kept = np.unique(digests, return_index=True)
        self._modified = modified[kept]


def relative_path(uri: str, landing: str) -> str:
    """The path of a file below the landing folder; Spark writes `file:///a` where the folder is declared as `/a`."""
    return _path_of(uri).removeprefix(f"{_path_of(landing)}/")


def _path_of(uri: str) -> str:
    scheme, separator, rest = uri.partition("://")
    path = f"/{rest.partition('/')[2]}" if separator else scheme.removeprefix("file:")
    return re.sub("/+", "/", path).rstrip("/")


def _digests(names: Sequence[str]) -> np.ndarray:
    digest = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in names)
    return np.frombuffer(digest, np.uint64)

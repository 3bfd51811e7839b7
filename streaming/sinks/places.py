"""Where whole files lie: the contract of such a place, and a folder as one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator

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

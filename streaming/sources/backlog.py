"""What a source holds that no batch has taken yet, told without Spark from its folder and the query's checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import basename

from streaming.spark import taken
from streaming.tables import storage


@dataclass(frozen=True)
class SourceBacklog:
    """What waits in the source."""

    files: int
    size: int
    """Bytes."""


class FilesBacklog:
    """Counts the files of a landing folder that are in no batch of the query; remembers those it has seen there."""

    def __init__(self, landing: str, checkpoint: str) -> None:
        self._landing = landing
        self._sources = f"{checkpoint}/sources/0"
        self._next = 0
        self._taken: set[str] = set()

    def count(self) -> SourceBacklog:
        """The files that wait now."""
        self._read_on()
        waiting = [info.size for info in storage.listed(self._landing) if info.base_name not in self._taken]
        return SourceBacklog(len(waiting), sum(waiting))

    def _read_on(self) -> None:
        while True:
            entry = f"{self._sources}/{self._next}"
            text = storage.read_text(entry) or storage.read_text(f"{entry}.compact")
            if text is None:
                if not self._jump_to_compaction():
                    return
                continue
            self._taken.update(basename(path) for _, path in taken(text))
            self._next += 1

    def _jump_to_compaction(self) -> bool:
        """Whether the next entry was deleted, as old ones are: next is then the newest compaction, which holds them."""
        compacted = [
            int(info.base_name.removesuffix(".compact"))
            for info in storage.listed(self._sources)
            if info.base_name.endswith(".compact")
        ]
        newest = max(compacted, default=-1)
        if newest < self._next:
            return False
        self._next = newest
        return True

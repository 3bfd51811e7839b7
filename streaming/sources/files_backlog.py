"""The files of a landing folder that no batch has taken yet, told without Spark from folder and checkpoint."""

from __future__ import annotations

from streaming.sources.backlog import SourceBacklog
from streaming.sources.taken_files import TakenFiles
from streaming.spark import is_visible
from streaming.tables import storage

_NAMED = 5


class FilesBacklog:
    """Counts the files of a landing folder that are in no batch of the query, and names those changed since theirs."""

    def __init__(self, landing: str, checkpoint: str) -> None:
        self._landing = landing
        self._taken = TakenFiles(landing, checkpoint)

    def count(self) -> SourceBacklog:
        """The files that wait now."""
        # In this order: a file that is taken between the two steps still waits, and is not missed later.
        self._taken.read_on()
        files = list(storage.walked(self._landing, is_visible))
        modified = self._taken.modified([name for name, _ in files])
        waiting = [info.size for (_, info), taken in zip(files, modified, strict=True) if taken is None]
        changed = [
            name
            for (name, info), taken in zip(files, modified, strict=True)
            if taken is not None and not _same_instant(info.mtime_ns // 1_000_000, taken)
        ]
        return SourceBacklog(len(waiting), "files", sum(waiting), _warning(sorted(changed)))


def _same_instant(listed: int, taken: int) -> bool:
    """Of modification times in milliseconds: Arrow knows those of some storages in whole seconds, Spark does not."""
    return listed in (taken, taken // 1000 * 1000)


def _warning(changed: list[str]) -> str:
    if not changed:
        return ""
    names = ", ".join(changed[:_NAMED]) + (f" and {len(changed) - _NAMED:,} more" if len(changed) > _NAMED else "")
    return (
        f"Changed, or delivered again under the same name, after it was read: {names}. A file is read once: deliver "
        "what was added or corrected as a new file under a new name."
    )

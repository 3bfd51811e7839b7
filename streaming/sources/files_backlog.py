"""The files of a landing folder that no batch has taken yet, told without Spark from folder and checkpoint."""

from __future__ import annotations

from collections.abc import Sequence

from streaming.sources.backlog import SourceBacklog
from streaming.sources.landed_files import listing_of
from streaming.sources.taken_files import TakenFiles

_NAMED = 5


class FilesBacklog:
    """Counts the files of a landing folder that are in no batch of the query, and names those changed since theirs."""

    def __init__(self, landing: str, checkpoint: str, names: Sequence[str] = ()) -> None:
        self._landing = landing
        self._names = names
        self._taken = TakenFiles(landing, checkpoint)

    def count(self) -> SourceBacklog:
        """The files that wait now."""
        # In this order: a file that is taken between the two steps still waits, and is not missed later.
        self._taken.read_on()
        listing = listing_of(self._landing, self._names)
        files = listing.files
        modified = self._taken.modified([file.name for file in files])
        waiting = [file.size for file, taken in zip(files, modified, strict=True) if taken is None]
        changed = [
            file.name
            for file, taken in zip(files, modified, strict=True)
            if taken is not None and not _same_instant(file.modified_ns // 1_000_000, taken)
        ]
        warnings = (_changed_warning(sorted(changed)), undecoded_warning(listing.undecoded))
        return SourceBacklog(len(waiting), "files", sum(waiting), " ".join(filter(None, warnings)))


def _same_instant(listed: int, taken: int) -> bool:
    """True if two modification times, in milliseconds, are the same instant.

    Arrow knows those of some storages in whole seconds, Spark does not.
    """
    return listed in (taken, taken // 1000 * 1000)


def undecoded_warning(names: Sequence[str]) -> str:
    """A sentence on files that are not read for their names; empty where there are none."""
    if not names:
        return ""
    return f"Not read, as its name is not UTF-8: {first_names(names)}. Rename it; the other files are read meanwhile."


def _changed_warning(changed: list[str]) -> str:
    if not changed:
        return ""
    return (
        f"Changed, or delivered again under the same name, after it was read: {first_names(changed)}. A file is read "
        "once: deliver what was added or corrected as a new file under a new name."
    )


def first_names(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")

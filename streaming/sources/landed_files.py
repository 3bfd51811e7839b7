"""The files in a landing folder: those that a batch may take, those that it will, and those that were taken.

All but the checks of a planned batch is told without Spark, from the folder and from the log that its file source keeps
in the checkpoint of the query.
"""

from __future__ import annotations

import os
import re
import stat
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from hashlib import blake2b
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import numpy as np

from streaming.base import DeclarationError, SourceError, check_tuple
from streaming.sources.file_payloads import FileBounds
from streaming.sources.source import SourceBacklog
from streaming.spark import FileInfo, TakenFile, file_at, is_visible, newest_compaction, planned, taken_entry
from streaming.tables import storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAMED = 5
_OF_PATHS = "/!$&'()*+,;=:@~"
"""Signs that stand for themselves in the path of a URI."""
_PUT_ASIDE = (
    "Nothing of its batch was taken. Move it out of the landing folder, leave an empty file under its name there, and "
    "run again; what is good in it can be landed under another name."
)


@dataclass(frozen=True)
class LandedFile:
    """A file by its path relative to the landing folder, with its bytes and modification time in nanoseconds."""

    name: str
    size: int
    modified_ns: int


def checked_names(names: str | Sequence[str]) -> tuple[str, ...]:
    """Patterns of file names as a tuple.

    Raises:
        DeclarationError: one of them is no pattern.
    """
    patterns = (names,) if isinstance(names, str) else names
    check_tuple("names of Files", patterns, str, "a pattern such as '*.json', or a tuple of such")
    for pattern in patterns:
        if not pattern or re.search(r"[/\[\]{}\\,]", pattern):
            raise DeclarationError(
                f"names={pattern!r} of Files is no pattern of file names; write one in which * stands for any text and "
                "? for one character, such as '*.json'."
            )
    return tuple(patterns)


def as_glob(names: Sequence[str]) -> str:
    """The patterns as Hadoop's one."""
    return f"{{{','.join(names)}}}" if len(names) > 1 else names[0]


def matcher(names: Sequence[str]) -> Callable[[str], bool]:
    """A function that is true for the path of a file whose name matches one of the patterns, or if there is none."""
    pattern = re.compile("|".join(map(translate, names)) or ".*", re.DOTALL)
    return lambda path: pattern.match(path.rpartition("/")[2]) is not None


@dataclass(frozen=True)
class Listing:
    """The visible files below a folder, and the names that Java cannot open, as they are no UTF-8, with their bytes."""

    files: tuple[LandedFile, ...]
    undecoded: tuple[str, ...] = ()


def listing_of(landing: str, names: Sequence[str] = ()) -> Listing:
    """The landing folder as it is now; of its files those whose names match one of `names`, all if there is none."""
    is_meant = matcher(names)
    files, root = storage.resolve(landing)
    if not storage.is_on_disk(files):
        stored = (LandedFile(name, info.size, info.mtime_ns) for name, info in storage.walked(landing, is_visible))
        return Listing(tuple(file for file in stored if is_meant(file.name)))
    found, undecoded = [], []
    for name, status in _walked(root):
        if status is None:
            undecoded.append(repr(os.fsencode(name))[2:-1])
        elif is_meant(name) and stat.S_ISREG(status.st_mode):
            found.append(LandedFile(name, status.st_size, status.st_mtime_ns))
    return Listing(tuple(found), tuple(sorted(undecoded)))


def undecoded_names(landing: str) -> tuple[str, ...]:
    """The names below a landing folder that Java cannot open, with their bytes; only a local disk has such."""
    files, _ = storage.resolve(landing)
    # To list another storage may take minutes.
    return listing_of(landing).undecoded if storage.is_on_disk(files) else ()


def _walked(root: str) -> Iterator[tuple[str, os.stat_result | None]]:
    """Each visible entry but folders by its relative path; without a status where its name is no UTF-8.

    Links are followed, and each folder is looked into once, links after all others: a file is known by its path, which
    must not depend on the order in which a disk tells its entries.
    """
    pending, seen = [""], set()
    links: list[str] = []
    while pending or links:
        folder = pending.pop() if pending else heappop(links)
        path = Path(root, folder)
        try:
            status = path.stat()
            key = (status.st_dev, status.st_ino)
            entries = [] if key in seen else list(os.scandir(path))
        except FileNotFoundError:
            continue
        seen.add(key)
        for entry in entries:
            if not is_visible(entry.name):
                continue
            name = f"{folder}/{entry.name}".lstrip("/")
            if not _is_decoded(name):
                yield name, None
                continue
            try:
                status = entry.stat()
            except OSError as error:
                # It was moved away meanwhile, or is a link that leads nowhere.
                if isinstance(error, FileNotFoundError) or entry.is_symlink():
                    continue
                raise
            if not stat.S_ISDIR(status.st_mode):
                yield name, status
            elif entry.is_symlink():
                heappush(links, name)
            else:
                pending.append(name)


def _is_decoded(name: str) -> bool:
    """Python stands surrogates for bytes that are no UTF-8."""
    return name.isascii() or not re.search("[\ud800-\udfff]", name)


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


def encoded(path: str) -> str:
    """A path or URI as Spark tells it in a row: URL-encoded, and without an authority that is empty."""
    scheme, separator, below = path.partition("://")
    if not separator:
        return quoted(path)
    return f"{scheme}:{quoted(below)}" if below.startswith("/") else f"{scheme}://{quoted(below)}"


def quoted(path: str) -> str:
    """A path as it stands in a URI of Java, which leaves what is not ASCII as it is."""
    return "".join(quote(each, safe=_OF_PATHS) if each.isascii() else each for each in path)


def _digest(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=8).digest()


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
            if taken is not None and not same_instant(file.modified_ns // 1_000_000, taken)
        ]
        warnings = (changed_warning(sorted(changed)), undecoded_warning(listing.undecoded))
        return SourceBacklog(len(waiting), "files", sum(waiting), " ".join(filter(None, warnings)))


def same_instant(listed: int, taken: int) -> bool:
    """True if two modification times, in milliseconds, are the same instant.

    Arrow knows those of some storages in whole seconds, Spark does not.
    """
    return listed in (taken, taken // 1000 * 1000)


def undecoded_warning(names: Sequence[str]) -> str:
    """A sentence on files that are not read for their names; empty where there are none."""
    if not names:
        return ""
    return f"Not read, as its name is not UTF-8: {first_names(names)}. Rename it; the other files are read meanwhile."


def changed_warning(changed: Sequence[str]) -> str:
    """A sentence on files that were changed after they were read; empty where there are none."""
    if not changed:
        return ""
    return (
        f"Changed, or delivered again under the same name, after it was read: {first_names(changed)}. A file is read "
        "once: deliver what was added or corrected as a new file under a new name."
    )


def first_names(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else "")


def planned_files(
    spark: SparkSession, checkpoint: str, query_batch: int, landing: str, bounds: FileBounds
) -> list[FileInfo]:
    """The files of a batch as they are now, by the paths that the checkpoint has.

    Raises:
        SourceError: one is gone, cannot be read, or exceeds the `bounds`.
    """
    files = []
    for path in planned(checkpoint, query_batch):
        file = file_at(spark, path)
        if file is None:
            raise vanished(path)
        size = file.size
        if size and path.startswith("file:") and ":" in path.rpartition("/")[2]:
            raise SourceError(f"{path} cannot be read: Hadoop knows no local file with a colon. {_PUT_ASIDE}")
        if size and bounds.may_exceed(path, size):
            _check_bounds(bounds, landing, path)
        files.append(file)
    return files


def vanished(path: str) -> SourceError:
    """The error for a file that is gone before its batch was committed."""
    return SourceError(
        f"a file vanished before its batch was committed: {path}. Put it back and run again; files of the landing "
        "folder may be removed only after their batch is in the log."
    )


def unreadable(path: str, reason: str) -> SourceError:
    """The error for a file that Spark could not read to its end."""
    return SourceError(f"{path} cannot be read ({reason}). {_PUT_ASIDE}")


def _check_bounds(bounds: FileBounds, landing: str, path: str) -> None:
    try:
        exceeded = bounds.exceeded(storage.below(landing), relative_path(path, landing))
    except FileNotFoundError as error:
        raise vanished(path) from error
    except OSError as error:
        raise SourceError(f"{path} cannot be unpacked ({error}). {_PUT_ASIDE}") from error
    if exceeded is not None:
        raise SourceError(
            f"{path} {exceeded}. {_PUT_ASIDE} If the file is right, raise that bound in Files(...), as far as the "
            "memory of driver and workers allows."
        )

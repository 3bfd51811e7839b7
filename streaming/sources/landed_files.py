"""The files in a landing folder that a batch may take, told without Spark: those that its file source sees."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from heapq import heappop, heappush
from pathlib import Path

from pyarrow import fs

from streaming.base import DeclarationError, check_tuple
from streaming.spark import is_visible
from streaming.tables import storage


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
    if not isinstance(files, fs.LocalFileSystem):
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
    return listing_of(landing).undecoded if isinstance(files, fs.LocalFileSystem) else ()


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

"""The files in a landing folder that a batch may take, told without Spark: those that its file source sees."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
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
    """Whether the file at a path is meant by one of the patterns, or by none where there are none."""
    pattern = re.compile("|".join(map(translate, names)) or ".*", re.DOTALL)
    return lambda path: pattern.match(path.rpartition("/")[2]) is not None


def landed_files(landing: str, names: Sequence[str] = ()) -> Iterator[LandedFile]:
    """The visible files below a folder whose names match one of `names`, all where there is none."""
    is_meant = matcher(names)
    files, root = storage.resolve(landing)
    for file in _local_files(root) if isinstance(files, fs.LocalFileSystem) else _stored_files(landing):
        if is_meant(file.name):
            yield file


def undecoded_names(landing: str) -> list[str]:
    """The names of local files and folders that are no UTF-8, with their bytes shown: Java cannot open them."""
    files, root = storage.resolve(landing)
    if not isinstance(files, fs.LocalFileSystem):
        return []
    walked = (name for name, _ in _walked(root) if not _is_decoded(name))
    return sorted(repr(os.fsencode(name))[2:-1] for name in walked)


def _stored_files(landing: str) -> Iterator[LandedFile]:
    for name, info in storage.walked(landing, is_visible):
        yield LandedFile(name, info.size, info.mtime_ns)


def _local_files(root: str) -> Iterator[LandedFile]:
    for name, entry in _walked(root):
        if _is_decoded(name) and entry.is_file():
            stat = entry.stat()
            yield LandedFile(name, stat.st_size, stat.st_mtime_ns)


def _walked(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Each visible entry with its relative path; links are followed, and each folder is looked into once."""
    pending, seen = [""], set()
    while pending:
        folder = pending.pop()
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
            yield name, entry
            if _is_decoded(name) and entry.is_dir():
                pending.append(name)


def _is_decoded(name: str) -> bool:
    """Python stands surrogates for bytes that are no UTF-8."""
    return name.isascii() or not re.search("[\ud800-\udfff]", name)

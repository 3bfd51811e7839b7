"""Delivers files into a local landing folder the way a careful source system does: whole, once, in order."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from streaming.base import FeedError

# Spark orders files by milliseconds, and some file systems keep times less exactly than that.
_STEP_NS = 10_000_000


class LandingWriter:
    """Writes line files into one folder, which is created when it is absent.

    A file appears under its name only when it is complete. Every file gets a later modification time than all
    before it, because Spark reads a folder in that order. These times are near the present on purpose: Spark
    ignores a file that is more than a week older than the newest it has read.

    Raises FeedError when the folder cannot be made, read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            times = [entry.stat().st_mtime_ns for entry in os.scandir(folder)]
        except OSError as error:
            raise _cannot_use(folder, error) from error
        self._last_ns = max([time.time_ns(), *times])

    def deliver(self, name: str, lines: Sequence[str]) -> int:
        """Write those of ``lines`` that are not in the folder under ``name`` yet; return how many these are.

        ``name`` is a file name such as ``2013-01-01T10.json``. When it exists with other lines, the missing
        ones go into ``2013-01-01T10-2.json``, so a file, once there, never changes.
        """
        wanted = Path(name)
        part = 1
        target = self.folder / name
        missing = Counter(lines)
        try:
            while target.exists():
                missing -= Counter(target.read_text(encoding="utf-8").split("\n"))
                part += 1
                target = self.folder / f"{wanted.stem}-{part}{wanted.suffix}"
            if missing:
                self._write(target, _in_order(lines, missing))
        except OSError as error:
            raise _cannot_use(self.folder, error) from error
        return missing.total()

    def _write(self, target: Path, lines: Sequence[str]) -> None:
        hidden = target.with_name(f".{target.name}.partial")
        hidden.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        self._last_ns = max(self._last_ns + _STEP_NS, time.time_ns())
        os.utime(hidden, ns=(self._last_ns, self._last_ns))
        hidden.replace(target)


def _in_order(lines: Sequence[str], wanted: Counter[str]) -> list[str]:
    left = wanted.copy()
    chosen = []
    for line in lines:
        if left[line] > 0:
            left[line] -= 1
            chosen.append(line)
    return chosen


def _cannot_use(folder: Path, error: OSError) -> FeedError:
    return FeedError(
        f"cannot use {str(folder)!r} as the landing folder ({error.strerror or error}): name a folder on "
        "a local disk that this user may write, or set TIDEMARK_HOME to one"
    )

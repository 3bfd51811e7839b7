"""Disks that are really full, of 32 MB each; only who may mount one has them, so that they are never required."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.services import ServiceMissed


def mount(*arguments: str | Path) -> None:
    """Mount, or skip the test where that is not allowed."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ServiceMissed("Disk to fill up", f"only who may mount one has it: {done.stderr.strip()}")


@contextmanager
def mounted(folder: Path) -> Iterator[Path]:
    """A disk of its own in the folder."""
    folder.mkdir()
    mount("-t", "tmpfs", "-o", "size=32m", "tmpfs", folder)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--recursive", "--lazy", folder], check=True)


def fill(folder: Path, free: int = 0) -> Path:
    """A file that takes all the space there is, but for `free` bytes."""
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as handle:
            while True:
                handle.write(bytes(4096))
    except OSError as error:
        assert error.errno == errno.ENOSPC
    with filler.open("rb+") as handle:
        handle.truncate(filler.stat().st_size - free)
    return filler

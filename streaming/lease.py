"""One process per pipeline: a lock that dies with its holder, so a crash never leaves it behind."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streaming.errors import LeaseError
from streaming.lake import Lake
from streaming.stream import Stream


@contextmanager
def lease(lake: Lake, stream: Stream) -> Iterator[None]:
    """Hold the checkpoints and tables of `stream` while the body runs.

    On a lake of this machine the lock file lies beside the checkpoints; for a remote lake it lies in this machine's
    temporary folder, and a second machine is kept out by Delta's own conflict check instead.

    Raises:
        LeaseError: another process holds it, or the folder cannot be written.
    """
    path = _lock_path(lake, stream)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        raise LeaseError(
            f"cannot write {str(path)!r} ({error.strerror}); make the lake's folder writable, or point "
            "TIDEMARK_HOME to another one. Nothing was changed."
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            handle.seek(0)
            raise LeaseError(
                f"pipeline {stream.name!r} is already running as process {handle.read().strip() or 'unknown'} on "
                f"this lake ({lake.root}); wait until it ends, or stop it. Nothing was changed."
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield


def _lock_path(lake: Lake, stream: Stream) -> Path:
    local = lake.local("_checkpoints", stream.name)
    if local is not None:
        return local / ".lease"
    digest = hashlib.sha256(lake.checkpoint(stream, "log").encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"tidemark-{digest}.lease"

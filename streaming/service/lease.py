"""One process per pipeline: a lock that dies with its holder, and a record that tells other machines of it."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from streaming.base import LeaseError, StoreError
from streaming.lake import Lake, Named
from streaming.tables import storage

TIMEOUT = timedelta(seconds=60)
"""The time for which a holder on another machine is believed without a sign of life."""

_RENEWED_EVERY = 10.0
_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class Holder:
    """Who holds a pipeline: `what` it does (such as `stream` or `drain`), and when it last gave a sign of life.

    `lock` is the id of the lock file that it has locked: hosts may have the same name, but no two have the same file.
    """

    host: str
    process: int
    what: str
    since: str
    renewed: str
    token: str
    lock: str = ""

    def __str__(self) -> str:
        return f"process {self.process} on {self.host} ({self.what}, since {self.since[:19]} UTC)"


class Lease:
    """The right to write the tables and checkpoints of one stream; a child process may inherit `fileno`."""

    def __init__(self, lake: Lake, pipeline: Named, handle: IO[str], holder: Holder) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._handle = handle
        self.holder = holder
        self.lost = threading.Event()
        """Set once another machine has taken over, because no sign of life had reached it for `TIMEOUT`."""
        self._released = threading.Event()
        self._renewing = threading.Thread(target=self._renew, name=f"lease {pipeline.name}", daemon=True)

    def fileno(self) -> int:
        """The descriptor that carries the lock: as long as any process has it open, the lease is held."""
        return self._handle.fileno()

    def _begin(self, record: storage.Snapshot) -> None:
        self._write(record)
        self._renewing.start()

    def _end(self) -> None:
        self._released.set()
        self._renewing.join()
        holder = _read(self._lake, self._pipeline)
        if holder is not None and holder.token == self.holder.token:
            storage.remove(_record(self._lake, self._pipeline))

    def _renew(self) -> None:
        while not self._released.wait(_RENEWED_EVERY):
            try:
                record = storage.look(_record(self._lake, self._pipeline))
                holder = _holder(record.content)
                if holder is not None and holder.token != self.holder.token:
                    self.lost.set()
                    return
                self.holder = Holder(**{**asdict(self.holder), "renewed": _now().isoformat()})
                self._write(record)
            except OSError as error:
                # A full disk passes; until then, on this machine, the lock is enough.
                _log.warning("%s: the lease could not be renewed (%s)", self._pipeline.name, error)

    def _write(self, record: storage.Snapshot) -> None:
        content = json.dumps(asdict(self.holder)).encode()
        storage.swap(_record(self._lake, self._pipeline), content, record, self.holder.token)


@contextmanager
def take_lease(
    lake: Lake, pipeline: Named, what: str = "drain", *, wait: float = 1.0, host: str | None = None
) -> Iterator[Lease]:
    """Hold the checkpoints and tables of a pipeline while the body runs; `wait` seconds for one that is just ending.

    On one machine the lock decides: it ends with its holder, whatever ends that. For others, also of the same name, a
    record beside the checkpoints counts, which the holder renews; one that is older than `TIMEOUT` is taken over, on an
    object store by one of those that try at once. A holder that slept through that cannot append to the log any more
    (`streaming.log.commit_batch`).

    Raises:
        LeaseError: another process holds it, or the folder cannot be written.
        StoreError: the object store of the lake is away.
    """
    if lake.cut is not None:
        raise LeaseError(f"{lake.root!r} is read as of an older batch, so nothing can run there.")
    host = host or socket.gethostname()
    path = _lock_path(lake, pipeline)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        raise _unwritable(path, error) from error
    with handle:
        try:
            # Whoever only looks for the holder has the lock for an instant, too.
            for attempt in Retrying(
                retry=retry_if_exception_type(BlockingIOError),
                stop=stop_after_delay(wait),
                wait=wait_fixed(0.05),
                reraise=True,
            ):
                with attempt:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _held(lake, pipeline, _read(lake, pipeline)) from error
        try:
            record, lock = storage.look(_record(lake, pipeline)), _named(handle)
            recorded = _holder(record.content)
            if recorded is not None and _is_elsewhere(recorded, host, lock):
                raise _held(lake, pipeline, recorded)
            now = _now().isoformat()
            held = Lease(lake, pipeline, handle, Holder(host, os.getpid(), what, now, now, uuid.uuid4().hex, lock))
            held._begin(record)
        except storage.ChangedMeanwhile as error:
            raise _held(lake, pipeline, _read(lake, pipeline)) from error
        except StoreError:
            raise
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            yield held
        finally:
            held._end()


@dataclass(frozen=True)
class LeasePlace:
    """The place of a lease that is not a pipeline's own, such as that of a rebuild."""

    name: str


def rewriting(lake: Lake, pipeline: Named) -> AbstractContextManager[Lease]:
    """The right to rewrite files of a pipeline's tables whose rows stay: to compact them, or to take rows out.

    delta-rs lets two such commits pass that replace the same file, and the table then has its rows twice, or again.

    Raises:
        LeaseError: another process does so.
    """
    return take_lease(lake, _rewriting(pipeline), "maintain")


def rewriter_of(lake: Lake, pipeline: Named) -> Holder | None:
    """Who has the right of `rewriting` now, or None."""
    return holder_of(lake, _rewriting(pipeline))


def _rewriting(pipeline: Named) -> LeasePlace:
    return LeasePlace(f"{pipeline.name}/maintenance")


def holder_of(lake: Lake, pipeline: Named) -> Holder | None:
    """Who holds the pipeline now, or None; takes nothing."""
    recorded, path, lock = _read(lake, pipeline), _lock_path(lake, pipeline), ""
    if path.exists():
        with path.open("a+") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return recorded or Holder("this machine", 0, "starting or ending", "", "", "")
            lock = _content(handle)
    elsewhere = recorded is not None and _is_elsewhere(recorded, socket.gethostname(), lock)
    return recorded if elsewhere else None


def has_left_record(lake: Lake, pipeline: Named) -> bool:
    """True if a holder that is gone has left its record; whoever holds the lease next leaves none behind."""
    return storage.read_bytes(_record(lake, pipeline)) is not None and holder_of(lake, pipeline) is None


def _unwritable(path: Path, error: OSError) -> LeaseError:
    return LeaseError(
        f"cannot write {str(path)!r} ({error.strerror}); make the lake's folder writable, or point TIDEMARK_HOME to "
        "another one. Nothing was changed."
    )


def _held(lake: Lake, pipeline: Named, holder: Holder | None) -> LeaseError:
    return LeaseError(
        f"pipeline {pipeline.name!r} is already held by {holder or 'another process'} on this lake ({lake.root}); wait "
        f"until it ends, or stop it (`tidemark down {pipeline.name}` ends a stream). Nothing was changed."
    )


def _named(handle: IO[str]) -> str:
    """The id of a lock file, which the first who has it locked gives it."""
    lock_id = _content(handle)
    if not lock_id:
        lock_id = uuid.uuid4().hex
        handle.write(lock_id)
        handle.flush()
    return lock_id


def _content(handle: IO[str]) -> str:
    handle.seek(0)
    return handle.read()


def _is_elsewhere(holder: Holder, host: str, lock: str) -> bool:
    """True if a holder is on another machine and still believed; the record of an older release names no lock file."""
    is_here = holder.host == host and holder.lock in ("", lock)
    return not is_here and not _expired(holder)


def _lock_path(lake: Lake, pipeline: Named) -> Path:
    return lake.machine_folder(pipeline) / ".lease"


def _record(lake: Lake, pipeline: Named) -> str:
    return lake.checkpoint(pipeline, "lease.json")


def _read(lake: Lake, pipeline: Named) -> Holder | None:
    return _holder(storage.read_bytes(_record(lake, pipeline)))


def _holder(content: bytes | None) -> Holder | None:
    try:
        return None if content is None else Holder(**json.loads(content))
    except (ValueError, TypeError):
        return None


def _expired(holder: Holder) -> bool:
    return _now() - datetime.fromisoformat(holder.renewed) > TIMEOUT


def _now() -> datetime:
    return datetime.now(UTC)

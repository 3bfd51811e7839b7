"""The files of a landing folder on a store that messages of a queue name, and from time to time a listing of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyarrow import fs

from streaming.base import SourceError, from_micros, interval, to_micros, utc_now
from streaming.sources.landed_files import (
    FilesBacklog,
    TakenFiles,
    changed_warning,
    listing_of,
    matcher,
    path_of,
    relative_path,
)
from streaming.sources.source import SourceBacklog
from streaming.sources.sqs_queue import Message, SqsQueue, StoredObject, client_of, objects_put
from streaming.spark import FileInfo, is_visible, newest_committed, newest_planned, planned
from streaming.tables import s3, storage

_LISTED = "listed.json"
"""Beside what Spark keeps in a checkpoint: when the folder was listed last, all of whose files are in a batch."""
_AT_MOST = 10_000
"""Messages that wait for their file to be committed; Spark plans so many files without asking for more."""
_SECOND = 1_000

_log = logging.getLogger(__name__)


@dataclass
class _Announcement:
    """A message that has named files, some of which are in no committed batch yet."""

    handle: str
    names: set[str]


class AnnouncedFiles:
    """The files that a query is to take, by their names relative to the `landing` folder, and the messages of them.

    What was received and is not deleted is in memory alone: where the process dies it comes again. Which files are
    taken, and which of their batches are done, is in the `checkpoint` of the query.

    Raises:
        SourceError: the folder lies on no store whose events come by a queue.
    """

    def __init__(
        self,
        queue: SqsQueue,
        landing: str,
        checkpoint: str,
        names: Sequence[str] = (),
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        check_on_store(landing)
        self._queue = queue
        self._client = client_of(queue)
        self._landing = landing
        self._checkpoint = checkpoint
        self._names = names
        self._is_meant = matcher(names)
        self._now = now
        self._announcements: dict[str, _Announcement] = {}
        self._files: dict[str, FileInfo] = {}
        self._found: set[str] = set()
        self._listed_at: datetime | None = None
        self._taken = TakenFiles(landing, checkpoint)

    def is_of(self, other: AnnouncedFiles) -> bool:
        """True if both are of the same queue and folder."""
        return (self._queue, self._landing, self._names) == (other._queue, other._landing, other._names)

    def begin(self) -> None:
        """Take note that a query begins, whose checkpoint may be another one than before."""
        self._taken = TakenFiles(self._landing, self._checkpoint)
        self._listed_at = _listed_at(self._checkpoint)

    def waiting(self) -> list[FileInfo]:
        """The files that no batch has taken, each by its path in the bucket.

        Raises:
            SourceError: the queue does not answer.
            StoreError: the store does not answer.
        """
        self._taken.read_on()
        new = self._receive()
        self._list_if_due()
        gone = self._look_at(new)
        self._settle({*gone, *self._done()})
        names = list(self._files)
        taken = self._taken.modified(names)
        return [self._files[name] for name, at in zip(names, taken, strict=True) if at is None]

    def commit(self, query_batch: int) -> None:
        """Delete the messages of a batch that is in the log."""
        try:
            self._settle({relative_path(path, self._landing) for path in planned(self._checkpoint, query_batch)})
        except SourceError as error:
            _log.warning("%s: messages of a batch that is in the log come again: %s", self._landing, error)

    def _receive(self) -> set[str]:
        """Take what the queue has; the names of the files that messages have named."""
        asked: set[str] = set()
        names: set[str] = set()
        strays: list[Message] = []
        while len(asked) < _AT_MOST and len(self._announcements) < _AT_MOST:
            messages = [message for message in self._client.receive() if message.id not in asked]
            if not messages:
                break
            asked |= {message.id for message in messages}
            useless = []
            for message in messages:
                put = objects_put(message.body)
                if put is None or any(each.bucket != self._bucket for each in put):
                    strays.append(message)
                    continue
                named = set(filter(None, map(self._name_of, put)))
                if named:
                    self._announcements[message.id] = _Announcement(message.handle, named)
                    names |= named
                else:
                    useless.append(message.handle)
            self._client.delete(useless)
        if strays:
            _log.warning(
                "%s: %s messages of %s are no events of S3, or of another bucket, and stay there; the first one begins "
                "with %r. If the queue is somebody else's, correct its URL; else let a dead-letter queue take them.",
                self._landing,
                len(strays),
                self._queue.url,
                strays[0].body[:200],
            )
        return names

    @property
    def _bucket(self) -> str:
        return s3.location(self._landing).removeprefix("s3://").partition("/")[0]

    def _name_of(self, put: StoredObject) -> str | None:
        """The name of an object below the landing folder; None where it is not one of its files."""
        below = f"{path_of(self._landing)}/"
        path = f"/{put.key}"
        name = path.removeprefix(below)
        parts = name.split("/")
        is_one = path.startswith(below) and all(map(is_visible, parts)) and all(parts) and self._is_meant(name)
        return name if is_one else None

    def _list_if_due(self) -> None:
        now = self._now()
        if self._listed_at is not None and now < self._listed_at + interval(self._queue.listed_every):
            return
        files = listing_of(self._landing, self._names).files
        taken = self._taken.modified([file.name for file in files])
        for file, at in zip(files, taken, strict=True):
            if at is None:
                self._add(file.name, file.size, file.modified_ns)
        self._found = {file.name for file, at in zip(files, taken, strict=True) if at is None}
        self._listed_at = now
        self._note_listing()

    def _look_at(self, names: Iterable[str]) -> set[str]:
        """Ask the store for files; those that are not there. Tells of those that have changed since they were taken."""
        asked = sorted(name for name in names if name not in self._files)
        if not asked:
            return set()
        taken = self._taken.modified(asked)
        with s3.reaching(self._landing):
            infos = storage.below(self._landing).get_file_info(asked)
        gone, changed = set[str](), list[str]()
        for name, at, info in zip(asked, taken, infos, strict=True):
            if at is not None:
                if info.type == fs.FileType.File and _millis(info.mtime_ns) > at:
                    changed.append(name)
            elif info.type == fs.FileType.File:
                self._add(name, info.size, info.mtime_ns)
            else:
                gone.add(name)
        if changed:
            _log.warning("%s: %s", self._landing, changed_warning(changed))
        return gone

    def _add(self, name: str, size: int, modified_ns: int) -> None:
        self._files[name] = FileInfo(f"{path_of(self._landing)}/{name}", size, _millis(modified_ns))

    def _done(self) -> list[str]:
        """The names of files that messages or a listing have named, and that are in a committed batch."""
        names = list({*self._files, *(name for each in self._announcements.values() for name in each.names)})
        newest = newest_planned(self._checkpoint)
        begun: set[str] = set()
        if newest is not None and newest != newest_committed(self._checkpoint):
            begun = {relative_path(path, self._landing) for path in planned(self._checkpoint, newest)}
        taken = self._taken.modified(names)
        return [name for name, at in zip(names, taken, strict=True) if at is not None and name not in begun]

    def _settle(self, done: Collection[str]) -> None:
        """Forget files, delete the messages that named no others, and note a listing of which none is left."""
        done = set(done)
        for name in done:
            self._files.pop(name, None)
        told = []
        for message, announcement in list(self._announcements.items()):
            announcement.names -= done
            if not announcement.names:
                told.append(announcement.handle)
                del self._announcements[message]
        if self._found & done:
            self._found -= done
            self._note_listing()
        self._client.delete(told)

    def _note_listing(self) -> None:
        if self._found or self._listed_at is None:
            return
        content = json.dumps({"at": to_micros(self._listed_at)}).encode()
        storage.put_whole(f"{self._checkpoint}/{_LISTED}", content)


def check_on_store(landing: str) -> None:
    """Refuse a landing folder of whose files no queue is told.

    Raises:
        SourceError: it lies on a disk, or on another kind of store.
    """
    if not s3.on_s3(landing):
        raise SourceError(
            f"the landing folder {landing!r} lies on no store that tells a queue of its files; name one on S3, such as "
            "Files('s3://bucket/landing', notified_by=...), or leave notified_by out."
        )


def _listed_at(checkpoint: str) -> datetime | None:
    """When the folder was listed last, of which all files are in batches; None where it is to be listed."""
    noted = storage.read_json(f"{checkpoint}/{_LISTED}")
    return None if noted is None else from_micros(noted["at"])


class AnnouncedBacklog:
    """Counts the messages of a queue; and while a listing is due, the files of the folder that are in no batch."""

    def __init__(self, queue: SqsQueue, landing: str, checkpoint: str, names: Sequence[str] = ()) -> None:
        self._queue = queue
        self._checkpoint = checkpoint
        self._files = FilesBacklog(landing, checkpoint, names)

    def count(self) -> SourceBacklog:
        """The files that wait now: those that messages name, about.

        Raises:
            SourceError: the queue does not answer.
        """
        listed = _listed_at(self._checkpoint)
        if listed is None or utc_now() >= listed + interval(self._queue.listed_every):
            return self._files.count()
        return SourceBacklog(client_of(self._queue).count(), "files")


def _millis(modified_ns: int) -> int:
    """The second of a time, in milliseconds: stores tell no more of a single object, and some do in a listing."""
    return modified_ns // 1_000_000_000 * _SECOND

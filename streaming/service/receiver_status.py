"""The state of a receiver, told in a file for everybody, and to whoever listens."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from streaming.base import SourceError
from streaming.declare import Pipeline, Receiver
from streaming.lake import Lake
from streaming.service.lease import holder_of
from streaming.service.status import RECEIVER, ControlFolder, ReceiverState, ReceiverStatus

_WRITES_EVERY = 0.5
_LOGGED_EVERY = 60.0

_log = logging.getLogger("tidemark")


@dataclass(frozen=True)
class ReceiverPlace:
    """Where a receiver keeps its lease and its state: beside the checkpoints of its pipeline."""

    pipeline: str
    receiver: str

    @classmethod
    def of(cls, pipeline: Pipeline, receiver: Receiver) -> ReceiverPlace:
        """The place of a receiver of a pipeline."""
        return cls(pipeline.name, receiver.name)

    @property
    def name(self) -> str:
        """The folder."""
        return f"{self.pipeline}/receivers/{self.receiver}"


class ReceiverReport:
    """The newest status of a receiver; `on_status` is told of it about twice a second, and of each change of state."""

    def __init__(
        self,
        lake: Lake,
        place: ReceiverPlace,
        receiver: Receiver,
        on_status: Callable[[ReceiverStatus], None],
        now: Callable[[], datetime],
    ) -> None:
        self._control = ControlFolder(lake, place)
        self._on_status = on_status
        self._now = now
        self._written_at = self._logged_at = 0.0
        self._logged = ""
        before = self._control.read(RECEIVER, ReceiverStatus)
        # One whose process dies again and again is away all the while.
        died = None if before is None or before.state == "stopped" else before
        self.status = ReceiverStatus(
            name=receiver.name,
            address=receiver.connector.address,
            guarantee=receiver.connector.guarantee,
            state="starting",
            since=now(),
            at=now(),
            pid=os.getpid(),
            why="" if died is None else died.why or f"its process before, {died.pid}, died",
            away_since=None if died is None else died.away_since or died.at,
            lost="" if before is None else before.lost,
            lost_at=None if before is None else before.lost_at,
        )

    def change(self, state: ReceiverState, why: str = "") -> None:
        """Go over to `state`, and write it; nothing happens where it is in it for the same reason."""
        if (state, why) == (self.status.state, self.status.why):
            return
        since = self.status.since if state == self.status.state else self._now()
        self.update(state=state, since=since, why=why)
        if state in ("receiving", "stopped"):
            self.update(away_since=None)
        # While the source is away it is tried again and again, for the same reason.
        if self.status.away_since is None or (state == "waiting" and why != self._logged):
            self._logged = why
            level = logging.WARNING if why else logging.INFO
            _log.log(level, "%s: %s (%s)%s", self.status.name, state, self.status.address, why and f", {why}")
        self._write()

    def connect(self) -> None:
        """Go over to connecting; why it had to wait before stays to be seen."""
        self.change("connecting", self.status.why)

    def wait(self, error: BaseException | None) -> None:
        """Go over to waiting, because of an error."""
        self.update(away_since=self.status.away_since or self._now())
        self.change("waiting", str(error) or type(error).__name__)

    def landed(self, rows: int) -> None:
        """Count a file."""
        status = self.status
        self.update(landed=status.landed + rows, files=status.files + 1, landed_at=self._now())

    def lost(self, why: str) -> None:
        """Tell that the source has lost rows that it was to keep."""
        _log.warning("%s: %s", self.status.name, why)
        self.update(losses=self.status.losses + 1, lost=why, lost_at=self._now())
        self._write()

    def discard(self, rows: int) -> None:
        """Count rows that come again, as they were not landed."""
        self.update(rows=self.status.rows - rows, discarded=self.status.discarded + rows)

    def update(self, **changes: object) -> None:
        """Change fields of the status, without writing it."""
        self.status = self.status.model_copy(update=changes)

    def write_if_due(self) -> None:
        """Write the status, if it was not written lately."""
        if time.monotonic() - self._written_at >= _WRITES_EVERY:
            self._write()
        if time.monotonic() - self._logged_at >= _LOGGED_EVERY:
            self._logged_at = time.monotonic()
            status = self.status
            _log.info("%s: %s rows came, %s of them landed in %s files", *_counts(status))

    def _write(self) -> None:
        self._written_at = time.monotonic()
        self.update(at=self._now())
        self._on_status(self.status)
        try:
            self._control.write(RECEIVER, self.status)
        except OSError as error:
            # A full disk passes; what is received waits for that itself.
            _log.debug("the state could not be written (%s)", error)


def _counts(status: ReceiverStatus) -> tuple[str, int, int, int]:
    return status.name, status.rows, status.landed, status.files


def receivers_of(lake: Lake, pipeline: Pipeline) -> Iterator[ReceiverStatus]:
    """The status of each receiver of a pipeline that was ever started here; one whose process is gone is stopped."""
    for receiver in pipeline.receivers:
        place = ReceiverPlace.of(pipeline, receiver)
        status = ControlFolder(lake, place).read(RECEIVER, ReceiverStatus)
        if status is None:
            continue
        if status.state != "stopped" and holder_of(lake, place) is None:
            status = status.model_copy(update={"state": "stopped", "why": f"its process, {status.pid}, is gone"})
        yield status


def make_landing(lake: Lake, receiver: Receiver) -> Path:
    """The folder in which a receiver lands files, made where it is not there.

    Raises:
        SourceError: it is not on this machine.
        OSError: it cannot be made.
    """
    location = receiver.into.source.location(lake)
    local = lake.local(location)
    if local is None:
        raise SourceError(
            f"the landing folder {location!r} is not on this machine, where receiver {receiver.name!r} lands whole "
            "files; name a folder of a disk that is mounted here."
        )
    local.mkdir(parents=True, exist_ok=True)
    return local

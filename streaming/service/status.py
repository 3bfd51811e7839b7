"""The status of a running pipeline, and the requests made of it: small files that any process may read."""

from __future__ import annotations

import errno
import os
from datetime import datetime
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict

from streaming.declare import Failure
from streaming.lake import Lake, Named
from streaming.sources import SourceBacklog

State = Literal["starting", "running", "draining", "restarting", "paused", "failed", "stopped"]
Phase = Literal["starting", "running", "draining", "stopping"]
ReceiverState = Literal["starting", "connecting", "receiving", "waiting", "stopped"]
Action = Literal["resume", "pause", "restart", "stop", "drain"]


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class QueryStatus(_File):
    """A log's query, an operator or a delivery: the batch that runs (since when), the last that ended, totals since the
    start.

    `rejected`: those of `rows` that a log got as rejected ones. `behind`: the batches of its logs that an operator has
    not followed yet, `behind_since` when that became more than one, `watermark`: that of its logs where it is.
    `paused`: why it does not go on while the others do, until somebody acts. `waiting`: why a delivery waits for its
    target, since when. `failures`: rows since the start that something outside did not answer, `failed_at` the last.
    `warned`: of each rule that only warns, the valid rows that broke it; `reasons`: those against rejected rows, by the
    rule's name or another label.
    """

    running_batch: int | None = None
    running_since: datetime | None = None
    last_batch: int | None = None
    last_ended: datetime | None = None
    last_seconds: float | None = None
    batches: int = 0
    rows: int = 0
    rejected: int = 0
    state_rows: int | None = None
    state_bytes: int | None = None
    behind: int | None = None
    behind_since: datetime | None = None
    watermark: datetime | None = None
    paused: str | None = None
    waiting: str | None = None
    waiting_since: datetime | None = None
    failures: int = 0
    failed_at: datetime | None = None
    warned: dict[str, int] = {}
    reasons: dict[str, int] = {}


class LateValue(_File):
    """A value that is late by `fresh_within`: its name, such as `tenant=acme`, and its newest time."""

    value: str
    newest: datetime


class ValuesStatus(_File):
    """The values of a stream or view that `fresh_within` asks for one by one, counted at `at`.

    `known` are those that have come and are not retired, `late` of them are older than they may be, of which `named`
    are the ones furthest behind.
    """

    at: datetime
    known: int
    late: int
    named: tuple[LateValue, ...] = ()


class UnusualHour(_File):
    """An hour that began `at`: its value, and what would have been usual: the median, and the bounds around it.

    The value is null where it is NaN or infinite, which JSON does not have.
    `of` is the stream or view, and `aggregate` what its value is, where a running stream was asked.
    """

    of: str = ""
    aggregate: str = ""
    at: datetime
    value: float | None
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        named = f"{self.aggregate} of {self.of!r} at " if self.of else ""
        usually = f"usually {self.median:,.4g} ({self.low:,.4g} to {self.high:,.4g})"
        value = "no finite number" if self.value is None else f"{self.value:,.4g}"
        return f"{named}{self.at:%Y-%m-%d %H:%M}: {value}, {usually}"


class ProcessStatus(_File):
    """The last status of the stream process, written at `at`; its main loop came round at `passed`.

    `rejected` and `late` are totals since its start; rates (rows a second) and `latency` (median, 95th and 99th
    percentile in seconds) are of the last minutes. `backlog` is that of all sources, one for each unit they count in,
    and empty until it was counted; `backlog_grows_since`: more has been waiting each time, since then;
    `catch_up_seconds`: until nothing waits, if it goes on to shrink as it does, null where it does not. `slow`: batches
    have been outlasting their trigger interval. `watermark` is the least of `watermarks`, once all streams have one.
    `unusual` is the last hour of each stream and view, where it is unusual by the rules of the limits.
    `values` are those that `fresh_within` asks for one by one, by table, such as `rides/log`.
    """

    pid: int
    started: datetime
    at: datetime
    passed: datetime
    phase: Phase = "starting"
    queries: dict[str, QueryStatus] = {}
    newest_batch: int | None = None
    watermark: datetime | None = None
    watermarks: dict[str, datetime] = {}
    rejected: int = 0
    late: int = 0
    input_rate: float = 0.0
    processing_rate: float = 0.0
    latency: tuple[float, float, float] | None = None
    rejected_share: float = 0.0
    backlog: tuple[SourceBacklog, ...] = ()
    backlog_grows_since: datetime | None = None
    catch_up_seconds: float | None = None
    memory_bytes: int | None = None
    slow: bool = False
    watermark_moved: datetime | None = None
    values: dict[str, ValuesStatus] = {}
    unusual: tuple[UnusualHour, ...] = ()

    @property
    def items_waiting(self) -> int | None:
        """The backlog as one number, of whatever its items are; None until it was counted."""
        return sum(part.items for part in self.backlog) if self.backlog else None

    @property
    def waiting(self) -> str:
        """The backlog in words; empty until it was counted."""
        return ", ".join(map(str, self.backlog))


class SupervisorStatus(_File):
    """The supervisor's last status: the state of the pipeline since when, its process, and what went wrong so far.

    `next_start` is set while the state is `restarting`; `handled` names the last request that was carried out.
    """

    state: State
    since: datetime
    supervisor: int
    host: str
    process: int | None = None
    restarts: int = 0
    failures: tuple[Failure, ...] = ()
    next_start: datetime | None = None
    handled: str = ""


class ReceiverStatus(_File):
    """The last status of a receiver, written at `at`: its state since when and, without a source, why and since when.

    Counts are since its start: `rows` that came, `landed` of them in `files`, `refused` ones, connections that were
    lost (`reconnects`), and what it has asked for on the connection that stands (`requested`). `discarded` ones came
    besides, and come again, as they were not landed when a connection was lost. `left_behind`: rows of a
    process before it that died. `behind`: bytes that the source keeps for it, None where it does not tell.
    `losses`: how often the source had lost rows that it was to keep; `lost` tells what, the last time, and `lost_at`
    when that was seen, also by a process before.
    """

    name: str
    address: str
    guarantee: str
    state: ReceiverState
    since: datetime
    at: datetime
    pid: int
    why: str = ""
    rows: int = 0
    landed: int = 0
    files: int = 0
    discarded: int = 0
    refused: int = 0
    reconnects: int = 0
    requested: int = 0
    left_behind: int = 0
    behind: int | None = None
    landed_at: datetime | None = None
    away_since: datetime | None = None
    losses: int = 0
    lost: str = ""
    lost_at: datetime | None = None

    @property
    def unlanded(self) -> int:
        """Rows in the hidden file."""
        return self.rows - self.landed


class Request(_File):
    """A request to the supervisor; the same `id` twice is one request."""

    id: str
    action: Action
    at: datetime


class LastWords(_File):
    """Why the stream process ended by itself, told by it (see `streaming.declare.restarts.Failure`)."""

    batch: str = ""
    origins: str = ""
    error: str
    final: bool = False
    outside: bool = False


Kind = TypeVar("Kind", bound=_File)


class ControlFolder:
    """The folder of this machine where a pipeline's processes leave word: beside the checkpoints of a local lake."""

    def __init__(self, lake: Lake, pipeline: Named) -> None:
        self.path = lake.machine_folder(pipeline) / ".control"

    def write(self, name: str, content: _File, room: int = 0) -> None:
        """Put `content` in place whole: a reader sees the old file or the new one.

        A file that takes up `room` bytes from the start can be overwritten where it lies once the disk is full.

        Raises:
            OSError: it cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        target, hidden = self.path / name, self.path / f".{name}.{os.getpid()}"
        text = content.model_dump_json().encode().ljust(room)
        try:
            hidden.write_bytes(text)
            hidden.replace(target)
        except OSError as error:
            if error.errno != errno.ENOSPC or not target.exists() or target.stat().st_size < len(text):
                raise
            with target.open("r+b") as there:
                there.write(text)

    def read(self, name: str, kind: type[Kind]) -> Kind | None:
        """The file's content, or None where there is none; one of another version of Tidemark counts as none."""
        try:
            return kind.model_validate_json((self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None

    def remove(self, name: str) -> None:
        """Take the file away, if it is there."""
        (self.path / name).unlink(missing_ok=True)

    @property
    def output(self) -> Path:
        """Everything that the stream process and its supervisor say."""
        return self.path / "stream.log"


def first_status(control: ControlFolder, now: datetime) -> ProcessStatus:
    """The status with which this process begins; a watermark that stands does not begin to with each process."""
    before = control.read(PROCESS, ProcessStatus)
    return ProcessStatus(
        pid=os.getpid(),
        started=now,
        at=now,
        passed=now,
        watermark=None if before is None else before.watermark,
        watermark_moved=None if before is None else before.watermark_moved,
    )


SUPERVISOR, PROCESS, REQUEST, RECEIVER = "supervisor.json", "process.json", "request.json", "receiver.json"
"""The names of the files."""

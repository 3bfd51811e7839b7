"""The state of a pipeline as anybody may see it: what its processes wrote, held against who really holds the lease."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from streaming.base import SupervisorError
from streaming.declare import Failure, Pipeline
from streaming.lake import Lake
from streaming.service.lease import Holder, holder_of
from streaming.service.progress import Skew, widest_skew
from streaming.service.receiver_status import receivers_of
from streaming.service.status import (
    PROCESS,
    REQUEST,
    SUPERVISOR,
    Action,
    ControlFolder,
    ProcessStatus,
    ReceiverStatus,
    Request,
    State,
    SupervisorStatus,
)


@dataclass(frozen=True)
class Overview:
    """One pipeline: its state since when, why, who holds it, and what its process said last.

    `process` is None where no stream process runs. `why` tells of a state that needs somebody to act. `receivers` are
    those that were ever started here.
    """

    pipeline: Pipeline
    state: State
    since: datetime | None
    why: str
    holder: Holder | None
    restarts: int
    failures: tuple[Failure, ...]
    process: ProcessStatus | None
    receivers: tuple[ReceiverStatus, ...] = ()

    @property
    def running(self) -> bool:
        """True if a supervisor sees to the pipeline."""
        return self.holder is not None and self.holder.what == "stream"

    @property
    def supervised_since(self) -> datetime | None:
        """When the supervisor that sees to the pipeline began; None where none does."""
        return datetime.fromisoformat(self.holder.since) if self.holder is not None and self.running else None

    @property
    def skew(self) -> Skew | None:
        """The widest skew between the clocks of streams that are joined; None where none are, or nothing runs."""
        return None if self.process is None else widest_skew(self.pipeline, self.process.watermarks)

    def lag(self, now: datetime) -> float | None:
        """Seconds from the watermark to `now`; None before there is one."""
        if self.process is None or self.process.watermark is None:
            return None
        return (now - self.process.watermark).total_seconds()


def look(lake: Lake, pipeline: Pipeline) -> Overview:
    """The state of a pipeline; reads a few small files, starts nothing and takes nothing."""
    control = ControlFolder(lake, pipeline)
    holder = holder_of(lake, pipeline)
    status = control.read(SUPERVISOR, SupervisorStatus)
    receivers = tuple(receivers_of(lake, pipeline))
    if status is None:
        why = f"`tidemark up` has never started it here, in the lake {lake.root!r}"
        return Overview(pipeline, "stopped", None, why, holder, 0, (), None, receivers)
    state, why = status.state, ""
    if status.state == "failed" and status.failures:
        why = status.failures[-1].error
    elif status.state not in ("stopped", "failed") and holder is None:
        # Whatever killed the supervisor left it no time to say so.
        state, why = "stopped", f"its supervisor, process {status.supervisor} on {status.host}, is gone"
    elif status.state == "restarting" and status.failures:
        why = status.failures[-1].error
    process = control.read(PROCESS, ProcessStatus) if status.process is not None else None
    alive = process is not None and process.pid == status.process and state not in ("stopped", "failed")
    return Overview(
        pipeline,
        state,
        status.since,
        why,
        holder,
        status.restarts,
        status.failures,
        process if alive else None,
        receivers,
    )


def request(lake: Lake, pipeline: Pipeline, action: Action, id_: str, now: datetime) -> None:
    """Ask the pipeline's supervisor for a change; the same `id_` twice asks once.

    Raises:
        SupervisorError: no supervisor runs that could carry it out.
    """
    overview = look(lake, pipeline)
    if not overview.running:
        held = "" if overview.holder is None else f"; {overview.holder} holds it, which this command does not end"
        raise SupervisorError(
            f"stream {pipeline.name!r} is not running in the lake {lake.root!r}{held}. `tidemark up {pipeline.name}` "
            f"starts it, `tidemark status {pipeline.name}` says why it ended."
        )
    ControlFolder(lake, pipeline).write(REQUEST, Request(id=id_, action=action, at=now))

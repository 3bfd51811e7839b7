"""The supervisor of one pipeline: starts its stream process, watches it, starts it again, and ends it when asked."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from streaming.base import interval, utc_now
from streaming.declare import Failure, Pipeline
from streaming.lake import Lake
from streaming.service.child import Child
from streaming.service.lease import Lease, take_lease
from streaming.service.process import DRAIN, STOP, origins
from streaming.service.status import (
    PROCESS,
    REQUEST,
    SUPERVISOR,
    Action,
    ControlFolder,
    LastWords,
    ProcessStatus,
    Request,
    State,
    SupervisorStatus,
)
from streaming.service.transient_errors import transient_cause

_LOOKS_EVERY = 0.2
_SILENT_AFTER = timedelta(seconds=60)
_STARTS_WITHIN = timedelta(minutes=3)
_KEPT_FAILURES, _TOLD_FAILURES = 50, 5
_OUTPUT_LIMIT = 10_000_000
_STATUS_ROOM = 64 * 1024
_PREDECESSOR_ENDS_WITHIN = 20.0

_log = logging.getLogger("tidemark")


class Supervisor:
    """Keeps the stream process of `pipeline` alive until it is asked to end it, or until its restart strategy gives up.

    `ask` may be called from any thread or signal handler; other processes leave a `Request` in the control folder.
    `on_state` is told of each change of the state.
    """

    def __init__(
        self,
        lake: Lake,
        pipeline: Pipeline,
        on_state: Callable[[SupervisorStatus], None] = lambda status: None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._on_state = on_state
        self._now = now
        self._control = ControlFolder(lake, pipeline)
        self._wake = threading.Event()
        self._asked: Action | None = None
        self._child: Child | None = None
        self._started = now()
        self._kill_at: float | None = None
        self._killed_for: LastWords | None = None
        self._untold = False
        self._failures: list[Failure] = []
        self._status = SupervisorStatus(state="stopped", since=now(), supervisor=os.getpid(), host=socket.gethostname())

    @property
    def status(self) -> SupervisorStatus:
        """The state as it was told last."""
        return self._status

    @property
    def process_status(self) -> ProcessStatus | None:
        """What the stream process said last; None before its first word."""
        found = self._control.read(PROCESS, ProcessStatus)
        return found if found is not None and self._child is not None and found.pid == self._child.pid else None

    def ask(self, action: Action) -> None:
        """Ask for a change; the last one asked for counts."""
        self._asked = action
        self._wake.set()

    def run(self, each: Callable[[], None] = lambda: None) -> SupervisorStatus:
        """Supervise until the end; the state then is `stopped` or `failed`. `each` is called a few times a second.

        An interrupt is a request to stop, which is carried out before it is raised again.

        Raises:
            LeaseError: another process holds the pipeline.
        """
        with take_lease(self._lake, self._pipeline, "stream", wait=_PREDECESSOR_ENDS_WITHIN) as held:
            waiting = self._control.read(REQUEST, Request)
            # What was asked of a supervisor that is gone is not asked of this one.
            self._tell("starting", handled="" if waiting is None else waiting.id)
            try:
                self._start(held)
                self._go_on(held, each)
            except BaseException:
                self.ask("stop")
                self._go_on(held, lambda: None)
                raise
            finally:
                self._end_child()
                if self._status.state not in ("stopped", "failed"):
                    self._tell("stopped")
        return self._status

    def _go_on(self, held: Lease, each: Callable[[], None]) -> None:
        while self._status.state not in ("stopped", "failed"):
            if self._untold:
                self._write_status()
            self._step(held)
            each()
            self._wake.wait(_LOOKS_EVERY)
            self._wake.clear()

    def _step(self, held: Lease) -> None:
        self._take_request()
        if held.lost.is_set():
            self._kill(LastWords(error="another machine has taken over the pipeline"))
            self.ask("stop")
        if self._child is not None:
            self._watch(self._child)
        elif self._status.next_start is not None and self._now() >= self._status.next_start:
            self._start(held)
        # What has failed is not asked to stop.
        if self._asked is not None and self._status.state != "failed":
            self._carry_out(held, self._asked)

    def _take_request(self) -> None:
        request = self._control.read(REQUEST, Request)
        if request is not None and request.id != self._status.handled:
            self._status = self._status.model_copy(update={"handled": request.id})
            self._write_status()
            self._asked = request.action

    def _carry_out(self, held: Lease, action: Action) -> None:
        """One step towards what was asked; forgotten once it is reached."""
        if action == "resume":
            self._asked = None
            if self._child is None and self._status.state == "paused":
                self._start(held)
        elif self._child is not None:
            if self._kill_at is None:
                self._tell("draining" if action == "drain" else self._status.state)
                self._child.signal(DRAIN if action == "drain" else STOP)
                # A drain may have much to publish; what it must not do is hang, and that is watched for.
                within = interval(self._pipeline.stop_within).total_seconds()
                self._kill_at = float("inf") if action == "drain" else time.monotonic() + within
        elif action == "restart":
            self._asked = None
            self._start(held)
        else:
            self._asked = None
            self._tell("paused" if action == "pause" else "stopped")

    def _start(self, held: Lease) -> None:
        self._kill_at, self._killed_for = None, None
        self._started = self._now()
        try:
            self._child = Child(self._lake, self._pipeline, held.fileno(), self._control.output)
        except OSError as error:
            self._fail(
                LastWords(error=transient_cause(error) or f"the process cannot be started: {error}", outside=True)
            )
        else:
            self._tell("starting", process=self._child.pid)

    def _watch(self, child: Child) -> None:
        code = child.exit_code
        if code is not None:
            self._ended(child, code)
            return
        said = self.process_status
        if said is not None and said.phase == "running" and self._status.state == "starting":
            self._tell("running")
        if self._kill_at is not None and time.monotonic() > self._kill_at:
            self._kill(LastWords(error=f"it did not end within {self._pipeline.stop_within}"))
        elif self._killed_for is None and (hung := self._hung(said)) is not None:
            self._kill(hung)
        self._bound_output()

    def _hung(self, said: ProcessStatus | None) -> LastWords | None:
        """What has been waited for too long, or None."""
        now = self._now()
        if said is None or said.phase == "starting":
            waited = now - self._started
            return LastWords(error=f"it did not start within {_STARTS_WITHIN}") if waited > _STARTS_WITHIN else None
        if now - said.at > _SILENT_AFTER:
            return LastWords(error=f"it has said nothing since {said.at:%H:%M:%S}")
        if said.phase == "running" and now - said.passed > interval(self._pipeline.hangs_after):
            return LastWords(error=f"its main loop has not come round since {said.passed:%H:%M:%S}")
        for name, query in said.queries.items():
            since, batch = query.running_since, query.running_batch
            if since is not None and batch is not None and now - since > interval(self._pipeline.hangs_after):
                return LastWords(
                    batch=f"{self._pipeline.name}.{name} {batch}",
                    origins=origins(self._lake, self._pipeline, name, batch),
                    error=f"the batch hangs: it has been running since {since:%H:%M:%S}",
                )
        return None

    def _ended(self, child: Child, code: int) -> None:
        words = self._end_child()
        if words is None and self._kill_at is not None:
            # Killed at the deadline of a stop, if need be: the batch it was in is run again by the next start.
            _log.info("%s: process %s ended", self._pipeline.name, child.pid)
            return
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} though nobody asked it to"
        self._fail(words or self._killed_for or LastWords(error=f"the process {ended}"))

    def _fail(self, words: LastWords) -> None:
        ran = self._now() - self._started
        failure = Failure(self._now(), ran, words.error, words.batch, words.origins, words.final, words.outside)
        self._failures = [*self._failures, failure][-_KEPT_FAILURES:]
        if self._kill_at is not None:
            return
        wait = self._pipeline.restart.wait(self._failures, self._pipeline.identical_failures)
        told = tuple(self._failures[-_TOLD_FAILURES:])
        if wait is None:
            self._tell("failed", failures=told)
        else:
            self._tell("restarting", failures=told, restarts=self._status.restarts + 1, next_start=self._now() + wait)

    def _kill(self, why: LastWords) -> None:
        _log.warning("%s: killing the stream process, %s", self._pipeline.name, why.error)
        self._killed_for = why
        if self._child is not None:
            self._child.kill()

    def _end_child(self) -> LastWords | None:
        words = None if self._child is None else self._child.end()
        self._child = None
        return words

    def _bound_output(self) -> None:
        """The process appends to the file for months: at ten megabytes it begins anew, and one old one is kept."""
        output = self._control.output
        if output.stat().st_size > _OUTPUT_LIMIT:
            shutil.copyfile(output, output.with_suffix(".old.log"))
            os.truncate(output, 0)

    def _tell(self, state: State, **changes: object) -> None:
        since = self._status.since if state == self._status.state else self._now()
        if self._child is None:
            changes["process"] = None
        changes.setdefault("next_start", None)
        before, self._status = self._status, self._status.model_copy(update={"state": state, "since": since, **changes})
        self._write_status()
        if state != before.state:
            _log.info("%s: %s", self._pipeline.name, state)
            self._on_state(self._status)

    def _write_status(self) -> None:
        """Say how it is; tried again until it is written, as a full disk must not end who waits for its end."""
        try:
            self._control.write(SUPERVISOR, self._status, _STATUS_ROOM)
        except OSError as error:
            if not self._untold:
                _log.warning("%s: its state could not be written (%s)", self._pipeline.name, error)
            self._untold = True
        else:
            self._untold = False

"""The supervisor of one pipeline: starts its stream process, watches it, starts it again, and ends it when asked."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from streaming.base import StreamingError, interval, utc_now
from streaming.declare import Failure, Pipeline, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service.continuous import Ending
from streaming.service.lease import Lease, take_lease
from streaming.service.lineage import StreamLineage
from streaming.service.logs import RUN, begin_run, configure_logs, current_run, new_run
from streaming.service.otlp import OtlpMetrics
from streaming.service.process import DRAIN, STOP, origins
from streaming.service.progress import hang
from streaming.service.pulse import Pulse, PulseReader
from streaming.service.query_errors import transient_cause
from streaming.service.receivers import ReceiverKeeper
from streaming.service.status import (
    REQUEST,
    SUPERVISOR,
    Action,
    ControlFolder,
    LastWords,
    Request,
    State,
    SupervisorStatus,
)

_LOOKS_EVERY = 0.2
_KEPT_FAILURES, _SHOWN_FAILURES = 50, 5
_PREDECESSOR_ENDS_WITHIN = 20.0

_log = logging.getLogger("tidemark")
_ROOM = 64 * 1024
_GROUP_ENDS_WITHIN = 3.0
_PIPE_HOLDS = 65_536
_OUTPUT_LIMIT = 10_000_000


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
    ) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._control = ControlFolder(lake, pipeline)
        self._state = _SupervisorState(pipeline.name, self._control, on_state)
        self._receivers = ReceiverKeeper(lake, pipeline, self._control.output)
        self._wake = threading.Event()
        self._asked: Action | None = None
        self._child: Child | None = None
        self._started = utc_now()
        self._ending: Ending | None = None
        self._kill_at: float | None = None
        self._killed_for: LastWords | None = None
        self._failures: list[Failure] = []
        self._lineage = StreamLineage(lake, pipeline, utc_now)
        self._metrics = OtlpMetrics(lake, pipeline, utc_now)

    @property
    def status(self) -> SupervisorStatus:
        """The state as it was told last."""
        return self._state.status

    def ask(self, action: Action) -> None:
        """Ask for a change; the last one asked for counts."""
        self._asked = action
        self._wake.set()

    def run(self, each: Callable[[], None] = lambda: None) -> SupervisorStatus:
        """Supervise until the end; the state then is `stopped` or `failed`. `each` is called a few times a second.

        An interrupt is a request to stop, which is carried out before it is raised again. An error that nothing here
        expects ends the stream process, and the state is `failed`.

        Raises:
            LeaseError: another process holds the pipeline.
        """
        with take_lease(self._lake, self._pipeline, "stream", wait=_PREDECESSOR_ENDS_WITHIN) as held:
            waiting = self._control.read(REQUEST, Request)
            # What was asked of a supervisor that is gone is not asked of this one.
            self._state.change("starting", handled="" if waiting is None else waiting.id)
            self._metrics.begin()
            try:
                self._start(held)
                self._go_on(held, each)
            except Exception as error:
                self._give_up(error)
                raise
            except BaseException:
                self.ask("stop")
                self._go_on(held, lambda: None)
                raise
            finally:
                self._end_child()
                self._lineage.end("ABORT")
                self._receivers.end()
                if not self._state.is_final:
                    self._state.change("stopped", process=None)
                self._lineage.close()
                self._metrics.close()
        return self.status

    def _go_on(self, held: Lease, each: Callable[[], None]) -> None:
        while not self._state.is_final:
            self._state.write_if_unwritten()
            self._receivers.keep()
            self._step(held)
            self._lineage.go_on()
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
        elif self.status.next_start is not None and utc_now() >= self.status.next_start:
            self._start(held)
        # What has failed is not asked to stop.
        if self._asked is not None and self.status.state != "failed":
            self._carry_out(held, self._asked)

    def _take_request(self) -> None:
        request = self._control.read(REQUEST, Request)
        if request is not None and request.id != self.status.handled:
            # In this order: what is asked once this one is seen to be handled counts, as the last.
            self._asked = request.action
            self._state.update(handled=request.id)

    def _carry_out(self, held: Lease, action: Action) -> None:
        """One step towards what was asked; forgotten once it is reached."""
        if self._child is not None and action == "resume":
            # One that is about to end is started again after that.
            if self._ending is None:
                self._asked = None
        elif self._child is not None:
            self._end(self._child, "drain" if action == "drain" else "stop")
        elif action == "drain" and self._ending != "drain":
            # There is no process that could publish what was taken in; one that waits for its restart drains after it.
            if self.status.next_start is None:
                self._start(held)
        else:
            self._asked = None
            if action == "restart" or (action == "resume" and self.status.next_start is None):
                self._start(held)
            elif action != "resume":
                self._state.change("paused" if action == "pause" else "stopped", process=None)

    def _end(self, child: Child, ending: Ending) -> None:
        """Tell the process to end, once; a stop may follow a drain, but no drain a stop."""
        if self._ending == ending or self._ending == "stop":
            return
        if ending == "drain":
            # Before its first pulse it does not listen yet, and the signal would kill it.
            if child.pulse is None:
                return
            self._state.change("draining")
        else:
            self._kill_at = time.monotonic() + interval(self._pipeline.stop_within).total_seconds()
        self._ending = ending
        child.signal(DRAIN if ending == "drain" else STOP)

    def _start(self, held: Lease) -> None:
        self._ending, self._kill_at, self._killed_for = None, None, None
        self._started = utc_now()
        begin_run(new_run())
        try:
            self._child = Child(self._lake, self._pipeline, held.fileno(), self._control.output)
        except OSError as error:
            self._fail(
                LastWords(error=transient_cause(error) or f"the process cannot be started: {error}", outside=True)
            )
        else:
            self._state.change("starting", process=self._child.pid)
            self._lineage.begin(self._child.pid)

    def _watch(self, child: Child) -> None:
        if child.exit_code is not None:
            self._ended(child, child.exit_code)
            return
        child.listen()
        if child.pulse is not None and child.pulse.phase == "running" and self.status.state == "starting":
            self._state.change("running")
        if self._is_overdue():
            self._kill(LastWords(error=f"it did not end within {self._pipeline.stop_within}"))
        elif self._killed_for is None:
            age = utc_now() - self._started
            why = hang(self._pipeline, child.pulse, age, timedelta(seconds=child.silence))
            if why is not None:
                self._kill(why)
        child.bound_output()

    def _is_overdue(self) -> bool:
        return self._kill_at is not None and time.monotonic() > self._kill_at

    def _ended(self, child: Child, code: int) -> None:
        overdue, words = self._is_overdue(), self._end_child()
        asked_for = self._ending is not None and code == 0
        # A process that is killed at the deadline of its stop, by itself or from here, leaves a batch, which the next
        # start runs again.
        if asked_for or (self._ending == "stop" and (words is None or overdue)):
            _log.info("process %s ended", child.pid)
            self._lineage.end("COMPLETE" if asked_for else "ABORT")
            return
        ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code} though nobody asked it to"
        self._fail(words or self._killed_for or LastWords(error=f"the process {ended}"))

    def _fail(self, words: LastWords) -> None:
        query, _, number = words.batch.removeprefix(f"{self._pipeline.name}.").rpartition(" ")
        self._lineage.end("FAIL", words.error, query)
        if words.batch and not words.origins:
            words = words.model_copy(update={"origins": origins(self._lake, self._pipeline, query, int(number))})
        ran = utc_now() - self._started
        failure = Failure(utc_now(), ran, words.error, words.batch, words.origins, words.final, words.outside)
        if self._ending == "drain":
            failure = replace(failure, error=f"its drain did not end: {words.error}")
        self._failures = [*self._failures, failure][-_KEPT_FAILURES:]
        if self._ending == "stop":
            return
        shown = tuple(self._failures[-_SHOWN_FAILURES:])
        # Another start would take in what the drain was to leave for later.
        drained = self._ending == "drain"
        wait = None if drained else self._pipeline.restart.wait(self._failures, self._pipeline.identical_failures)
        if wait is None:
            self._state.change("failed", failures=shown, process=None)
        else:
            self._state.change(
                "restarting",
                failures=shown,
                process=None,
                restarts=self.status.restarts + 1,
                next_start=utc_now() + wait,
            )

    def _give_up(self, error: Exception) -> None:
        _log.exception("the supervisor has failed")
        self._end_child()
        # What was asked of the process is not what has ended it.
        if self._ending == "stop":
            self._ending = None
        self._fail(LastWords(error=f"its supervisor has failed: {error or type(error).__name__}", final=True))

    def _kill(self, why: LastWords) -> None:
        _log.warning("killing the stream process, %s", why.error)
        self._killed_for = why
        if self._child is not None:
            self._child.kill()

    def _end_child(self) -> LastWords | None:
        words = None if self._child is None else self._child.end()
        self._child = None
        return words


class _SupervisorState:
    """The newest status of the supervisor of `pipeline`; `on_state` is told of each change of the state."""

    def __init__(
        self,
        pipeline: str,
        control: ControlFolder,
        on_state: Callable[[SupervisorStatus], None],
    ) -> None:
        self._pipeline = pipeline
        self._control = control
        self._on_state = on_state
        self._unwritten = False
        self.status = SupervisorStatus(
            state="stopped", since=utc_now(), supervisor=os.getpid(), host=socket.gethostname()
        )

    @property
    def is_final(self) -> bool:
        """True if nothing will change the status any more."""
        return self.status.state in ("stopped", "failed")

    def change(self, state: State, **changes: object) -> None:
        """Go over to `state`, with other fields of the status."""
        before = self.status
        since = before.since if state == before.state else utc_now()
        self.update(state=state, since=since, **{"next_start": None, **changes})
        if state != before.state:
            _log.info("%s", state)
            self._on_state(self.status)

    def update(self, **changes: object) -> None:
        """Change fields of the status, and write it."""
        self.status = self.status.model_copy(update=changes)
        self._write()

    def write_if_unwritten(self) -> None:
        """Try again what could not be written: a full disk must not end who waits for its end."""
        if self._unwritten:
            self._write()

    def _write(self) -> None:
        try:
            self._control.write(SUPERVISOR, self.status, _ROOM)
        except OSError as error:
            if not self._unwritten:
                _log.warning("the state could not be written (%s)", error)
            self._unwritten = True
        else:
            self._unwritten = False


class Child:
    """A stream process of `pipeline`, started at once; it inherits the descriptor `lease` and speaks to `output`."""

    module: ClassVar[tuple[str, ...]] = ("streaming.service", "process")
    """The module that Python runs; the pipeline's name, the supervisor's process and two pipes follow."""

    def __init__(self, lake: Lake, pipeline: Pipeline, lease: int, output: Path) -> None:
        self._scratch = Path(tempfile.gettempdir()) / f"tidemark-scratch-{os.getpid()}-{pipeline.name}"
        # A killed process leaves its temporary files; there are many restarts in a month.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        output.parent.mkdir(parents=True, exist_ok=True)
        self._output = output
        self._last_words, last_words_to = os.pipe()
        pulse_from, pulse_to = os.pipe()
        os.set_blocking(self._last_words, False)
        # The process must never wait for a supervisor that does not read.
        os.set_blocking(pulse_to, False)
        self._pulses = PulseReader(pulse_from)
        self._heard_at = time.monotonic()
        self._output_limit = _OUTPUT_LIMIT
        self.pulse: Pulse | None = None
        """The newest sign of life, as of the last `listen`."""
        arguments = [pipeline.name, str(os.getpid()), str(last_words_to), str(pulse_to)]
        with output.open("ab") as stream_log, os.fdopen(last_words_to, "wb"), os.fdopen(pulse_to, "wb"):
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", *self.module, *arguments],
                env={
                    **os.environ,
                    "TIDEMARK_HOME": lake.root,
                    "TIDEMARK_SCRATCH": str(self._scratch),
                    RUN: current_run(),
                },
                stdin=subprocess.DEVNULL,
                stdout=stream_log,
                stderr=stream_log,
                # A group of its own: Ctrl-C is for the supervisor, and at the end nobody of the group is left alive.
                start_new_session=True,
                pass_fds=(lease, last_words_to, pulse_to),
            )

    @property
    def pid(self) -> int:
        """The Python process, which is also the group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, negative for a signal; None while it runs."""
        return self._process.poll()

    @property
    def silence(self) -> float:
        """Seconds since the newest sign of life; the time for which the machine slept does not count."""
        return time.monotonic() - self._heard_at

    def listen(self) -> None:
        """Take in the signs of life that came."""
        pulse = self._pulses.newest()
        if pulse is not None:
            self.pulse, self._heard_at = pulse, time.monotonic()

    def bound_output(self) -> None:
        """The process appends to its output for months: at ten megabytes it begins anew, and one old one is kept.

        Where that cannot be done, such as on a full disk, it is tried again ten megabytes later.
        """
        old = self._output.with_suffix(".old.log")
        try:
            size = self._output.stat().st_size
            if size > self._output_limit:
                self._output_limit = size + _OUTPUT_LIMIT
                shutil.copyfile(self._output, old)
                os.truncate(self._output, 0)
                self._output_limit = _OUTPUT_LIMIT
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("the output could not begin anew (%s)", error)
            # The stream needs the room that a part of a copy takes.
            with suppress(OSError):
                old.unlink()

    def signal(self, number: int) -> None:
        """Send a signal to the Python process alone: its JVM would not wait for the end of the batch."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill every process of the group."""
        os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> LastWords | None:
        """After this, no process of the group is left: neither Python, nor its JVM, nor Python workers.

        Returns why it ended by itself; None where it was ended, or died without a word.
        """
        deadline = time.monotonic() + _GROUP_ENDS_WITHIN
        if self._process.poll() is None:
            self.kill()
        self._process.wait()
        while self._group_lives() and time.monotonic() < deadline:
            time.sleep(0.05)
        if self._group_lives():
            self.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._pulses.close()
        with os.fdopen(self._last_words, "rb") as last_words:
            try:
                return LastWords.model_validate_json(last_words.read(_PIPE_HOLDS) or b"")
            except ValidationError:
                return None

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True


def supervise(lake: Lake, pipeline: Pipeline) -> int:
    """Supervise until the end, which TERM and INT ask for, USR1 with a drain; returns 1 where the pipeline failed.

    Raises:
        LeaseError: another process holds the pipeline.
    """
    supervisor = Supervisor(lake, pipeline)
    for number in (STOP, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.ask("stop"))
    signal.signal(DRAIN, lambda *_: supervisor.ask("drain"))
    # A terminal that is closed is no reason to end a stream that was to run on.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return 1 if supervisor.run().state == "failed" else 0


def supervise_main(name: str) -> None:
    """Supervise the pipeline `name`; the exit code tells whether it failed."""
    settings = Settings()
    configure_logs(settings, name)
    try:
        sys.exit(supervise(settings.lake, find_pipeline(name)))
    except StreamingError as error:
        logging.getLogger("tidemark").error("%s", error)
        sys.exit(1)

"""All receivers of a pipeline in one process: `python -m streaming.service receive PIPELINE SUPERVISOR`."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event

from streaming.base import LeaseError
from streaming.declare import ExponentialBackoff, Failure, Pipeline, Receiver, find_pipeline
from streaming.lake import Lake, Settings
from streaming.service.logs import RUN, configure_logs, current_run, new_run
from streaming.service.receiving import Receiving
from streaming.service.status import ReceiverStatus

_LOOKS_EVERY = 0.5
_LEASE_TRIED_EVERY = 5.0

_log = logging.getLogger("tidemark")
_ENDS_WITHIN = 15.0
_KEPT_FAILURES = 50


def receive(
    lake: Lake,
    pipeline: Pipeline,
    receivers: Sequence[Receiver],
    stop: Event,
    on_status: Callable[[ReceiverStatus], None] = lambda status: None,
    each: Callable[[], None] = lambda: None,
) -> None:
    """Run receivers of a pipeline, each in a thread of its own, until `stop` is set; `each` is called now and then.

    Raises:
        LeaseError: another process runs one of them; the others are stopped.
        SourceError: a landing folder is not on this machine; the others are stopped.
    """
    with ThreadPoolExecutor(len(receivers), thread_name_prefix="receiver") as threads:
        works = [Receiving(lake, pipeline, receiver, stop, on_status) for receiver in receivers]
        _await([threads.submit(work.run) for work in works], stop, each)


def _await(running: Sequence[Future[None]], stop: Event, each: Callable[[], None]) -> None:
    try:
        while not stop.is_set() and not any(ended.done() for ended in running):
            each()
            wait(running, _LOOKS_EVERY, FIRST_EXCEPTION)
    finally:
        stop.set()
    for ended in running:
        ended.result()


def receive_main(name: str, supervisor: str) -> None:
    """Run all receivers of the pipeline `name` until TERM, or until the supervisor, by its process, is gone."""
    settings = Settings()
    configure_logs(settings, name, os.environ.get(RUN) or new_run())
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    pipeline = find_pipeline(name)

    def guard() -> None:
        if os.getppid() != int(supervisor) and not stop.is_set():
            _log.warning("the supervisor is gone, stopping the receivers")
            stop.set()

    def run(receiver: Receiver) -> None:
        last_reason = ""
        while not stop.is_set():
            try:
                Receiving(settings.lake, pipeline, receiver, stop).run()
            except LeaseError as error:
                # Somebody receives by hand; once they stop, this goes on.
                if str(error) != last_reason:
                    _log.warning("%s", error)
                last_reason = str(error)
                stop.wait(_LEASE_TRIED_EVERY)

    with ThreadPoolExecutor(len(pipeline.receivers), thread_name_prefix="receiver") as threads:
        _await([threads.submit(run, receiver) for receiver in pipeline.receivers], stop, guard)


class ReceiverKeeper:
    """Starts the receivers of `pipeline`, if it has any, in a process that speaks to `output`, and starts it again.

    It is independent of the stream process: what cannot be read again has to be received also while that is paused,
    restarts, or drains.
    """

    def __init__(self, lake: Lake, pipeline: Pipeline, output: Path, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._output = output
        self._now = now
        self._process: subprocess.Popen[bytes] | None = None
        self._started = now()
        self._next_start = now()
        self._failures: list[Failure] = []

    @property
    def pid(self) -> int | None:
        """The process that runs; None where none does."""
        return None if self._process is None else self._process.pid

    def keep(self) -> None:
        """Start the process if it is to run and does not; to be called a few times a second."""
        if not self._pipeline.receivers:
            return
        if self._process is not None and (code := self._process.poll()) is not None:
            self._process = None
            self._failed(f"the process of the receivers ended with code {code}")
        if self._process is None and self._now() >= self._next_start:
            self._start()

    def end(self) -> None:
        """Let the receivers land what they have, and end; a process that does not within a while is killed."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            _log.warning("killing the process of the receivers, which did not end within %.0f s", _ENDS_WITHIN)
            self._process.kill()
            self._process.wait()
        self._process = None

    def _start(self) -> None:
        self._started = self._now()
        try:
            self._output.parent.mkdir(parents=True, exist_ok=True)
            with self._output.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-u", "-m", "streaming.service", "receive", self._pipeline.name, str(os.getpid())],
                    env={**os.environ, "TIDEMARK_HOME": self._lake.root, RUN: current_run()},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C is for the supervisor.
                    start_new_session=True,
                )
        except OSError as error:
            self._failed(f"the process of the receivers cannot be started: {error}")

    def _failed(self, error: str) -> None:
        ran = self._now() - self._started
        self._failures = [*self._failures, Failure(self._now(), ran, error)][-_KEPT_FAILURES:]
        wait = ExponentialBackoff().wait(self._failures) or timedelta()
        self._next_start = self._now() + wait
        _log.warning("%s; it is started again in %.0f s", error, wait.total_seconds())

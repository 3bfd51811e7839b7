"""Keeps the process of a pipeline's receivers alive for as long as the pipeline has a supervisor."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from streaming.declare import ExponentialBackoff, Failure, Pipeline
from streaming.lake import Lake
from streaming.service.log_context import current_run
from streaming.service.logs import RUN

_ENDS_WITHIN = 15.0
_KEPT_FAILURES = 50

_log = logging.getLogger("tidemark")


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

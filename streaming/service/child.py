"""The stream process as its supervisor sees it: a group of processes that is started, signalled and ended as one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

from pydantic import ValidationError

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.service.log_context import current_run
from streaming.service.logs import RUN
from streaming.service.pulse import Pulse, PulseReader
from streaming.service.status import LastWords

_GROUP_ENDS_WITHIN = 3.0
_PIPE_HOLDS = 65_536
_OUTPUT_LIMIT = 10_000_000


class Child:
    """A stream process of `pipeline`, started at once; it inherits the descriptor `lease` and speaks to `output`."""

    module: ClassVar[tuple[str, ...]] = ("streaming.service", "process")
    """What Python runs; the pipeline's name, the supervisor's process and two pipes follow."""

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
        """How it ended, negative for a signal; None while it runs."""
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
        """The process appends to its output for months: at ten megabytes it begins anew, and one old one is kept."""
        with suppress(FileNotFoundError):
            if self._output.stat().st_size > _OUTPUT_LIMIT:
                shutil.copyfile(self._output, self._output.with_suffix(".old.log"))
                os.truncate(self._output, 0)

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

"""The stream process as its supervisor sees it: a group of processes that is started, signalled and ended as one."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pydantic import ValidationError

from streaming.declare import Pipeline
from streaming.lake import Lake
from streaming.service.status import LastWords

_GROUP_ENDS_WITHIN = 3.0
_PIPE_HOLDS = 65_536


class Child:
    """A stream process of `pipeline`, started at once; it inherits the descriptor `lease` and speaks to `output`."""

    def __init__(self, lake: Lake, pipeline: Pipeline, lease: int, output: Path) -> None:
        self._scratch = Path(tempfile.gettempdir()) / f"tidemark-scratch-{os.getpid()}-{pipeline.name}"
        # A killed process leaves its temporary files; there are many restarts in a month.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._scratch.mkdir()
        output.parent.mkdir(parents=True, exist_ok=True)
        self._last_words, told_last = os.pipe()
        os.set_blocking(self._last_words, False)
        arguments = [pipeline.name, str(os.getpid()), str(told_last)]
        with output.open("ab") as said, os.fdopen(told_last, "wb"):
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "streaming.service", "process", *arguments],
                env={**os.environ, "TIDEMARK_HOME": lake.root, "TIDEMARK_SCRATCH": str(self._scratch)},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                # A group of its own: Ctrl-C is for the supervisor, and at the end nobody of the group is left alive.
                start_new_session=True,
                pass_fds=(lease, told_last),
            )

    @property
    def pid(self) -> int:
        """The Python process, which is also the group."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How it ended, negative for a signal; None while it runs."""
        return self._process.poll()

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
        with os.fdopen(self._last_words, "rb") as told:
            try:
                return LastWords.model_validate_json(told.read(_PIPE_HOLDS) or b"")
            except ValidationError:
                return None

    def _group_lives(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

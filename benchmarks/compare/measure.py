"""A contender as a whole process: how long it took, what it burnt, and how much memory it had at its peak."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.demands import PROJECT
from benchmarks.processes import code_of, family

_LOOKS_EVERY = 0.1


@dataclass(frozen=True)
class Measured:
    """One run: wall and CPU seconds and peak resident bytes of the process and all it started; its `result`."""

    wall: float
    cpu: float
    peak: int
    result: dict[str, Any]


def measure(command: Sequence[str], environment: Mapping[str, str] | None = None, project: Path = PROJECT) -> Measured:
    """Run the command, which is given the path of a file more and writes its result there, as JSON.

    Its code is that of `project`.

    Raises:
        RuntimeError: it failed; the text ends with the end of its output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        result, output = Path(scratch) / "result.json", Path(scratch) / "output.log"
        with output.open("wb") as output_file:
            started = time.monotonic()
            process = subprocess.Popen(
                [*command, str(result)],
                env={**os.environ, **code_of(project), **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=output_file,
                stderr=output_file,
            )
            tree = _Tree(process.pid)
            code = process.wait()
            wall = time.monotonic() - started
            tree.end()
        if code or not result.exists():
            raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{output.read_text()[-3000:]}")
        return Measured(wall, tree.cpu, tree.peak, json.loads(result.read_text()))


class _Tree:
    """Watches a process and its descendants, whoever of them ends first."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._burnt: dict[tuple[int, float], float] = {}
        self._pid = pid
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def cpu(self) -> float:
        """Seconds of all of them, to a look's precision."""
        return sum(self._burnt.values())

    def end(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            self._look()
            if self._over.wait(_LOOKS_EVERY):
                return

    def _look(self) -> None:
        resident = 0
        for member in family(self._pid):
            try:
                with member.oneshot():
                    times = member.cpu_times()
                    self._burnt[member.pid, member.create_time()] = times.user + times.system
                    resident += member.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        self.peak = max(self.peak, resident)

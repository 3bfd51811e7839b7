"""A stream that is not left in peace: bursts, silence, kills, corrections and compaction for an hour, then the audit.

`make soak MINUTES=n` runs it; `python -m benchmarks.soak --keyed` is the same with keyed functions and rules in place
of views. The record goes to the folder of the run as `record.md`, `record.json` and `record.png`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.committed import newest_in_logs
from benchmarks.demands import begin, conclude, console
from benchmarks.pipelines import keyed_meters, meters
from benchmarks.processes import family, jvms, orphans, until
from benchmarks.readings import LandedReadings, land
from benchmarks.soak_record import Kill, Record, demands_of, draw
from benchmarks.undisturbed import as_undisturbed
from streaming import Lake, Pipeline
from streaming.service.overview import look

_FILE_EVERY = 2.0
_ROWS = 100
_BURST_EVERY, _BURST_FOR, _BURST_TIMES = 600.0, 30.0, 20
_IDLE_EVERY, _IDLE_FOR = 900.0, 60.0
_KILL_EVERY, _CORRECT_EVERY, _MAINTAIN_EVERY, _LIMIT_EVERY = 120.0, 300.0, 600.0, 15.0


class Soak:
    """One soak in a lake of its own."""

    def __init__(self, folder: Path, minutes: float, seed: int, pipeline: Pipeline) -> None:
        self.lake = Lake(str(folder / "lake"))
        self.pipeline = pipeline
        self.record = Record(minutes)
        self._random = random.Random(seed)
        self._readings = LandedReadings(Path(pipeline.streams[0].source.location(self.lake)), seed)
        self._started_at = time.monotonic()
        self._over = threading.Event()
        self._supervisor: subprocess.Popen[bytes] | None = None
        self._recovering = False
        self._limits = 0
        self._output = (folder / "output.log").open("ab")
        self._environment = {**os.environ, "TIDEMARK_HOME": self.lake.root}

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started_at

    def run(self) -> None:
        """Everything at once for the wanted time; then the rest is drained and corrected."""
        jobs: tuple[tuple[float, Callable[[], None]], ...] = (
            (_FILE_EVERY, self._generate),
            *([(_LIMIT_EVERY, self._set_limit)] if self.pipeline.control_streams else []),
            (_CORRECT_EVERY, lambda: self.tidemark("correct", self.pipeline.name)),
            (_MAINTAIN_EVERY, lambda: self.tidemark("maintain", self.pipeline.name)),
            (10.0, self._sample),
            (2.0, self._keep),
            (_KILL_EVERY, self._kill),
        )
        self._keep()
        threads = [threading.Thread(target=self._repeat, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        while self.seconds < self.record.minutes * 60:
            self._over.wait(30)
            overview = look(self.lake, self.pipeline)
            process = overview.process
            console.print(
                f"{self.seconds / 60:5.1f} min  {overview.state:10}  {self.record.generated:>9,} rows out, batch "
                f"{'-' if process is None else process.newest_batch}, "
                f"{'-' if process is None else process.waiting}, {len(self.record.kills)} kills",
                highlight=False,
            )
        self._over.set()
        for thread in threads:
            thread.join()
        self._await_backlog()
        self.tidemark("down", "--drain", self.pipeline.name)
        self.tidemark("run", self.pipeline.name, "--end-of-input")
        self.tidemark("correct", self.pipeline.name)

    def _repeat(self, every: float, job: Callable[[], None]) -> None:
        while not self._over.wait(every):
            job()

    def _generate(self) -> None:
        """A file of readings; many more in a burst, none in an idle minute, unless a commit is waited for."""
        if self.seconds % _IDLE_EVERY > _IDLE_EVERY - _IDLE_FOR and not self._recovering:
            return
        times = _BURST_TIMES if self.seconds % _BURST_EVERY < _BURST_FOR and self.seconds > _BURST_FOR else 1
        self._readings.land(_ROWS * times, datetime.now(UTC))
        self.record.generated, self.record.damaged = self._readings.generated, self._readings.damaged

    def _set_limit(self) -> None:
        """A limit of some meter becomes another, for the readings that come with it or later."""
        self._limits += 1
        meter, now = f"m{self._random.randrange(20):02}", datetime.now(UTC).isoformat()
        limit = {"meter": meter, "most": self._random.random() * 9, "number": self._limits, "set_at": now}
        landing = Path(self.pipeline.control_streams[0].source.location(self.lake))
        landing.mkdir(parents=True, exist_ok=True)
        land(landing, f"{self._limits:06}", json.dumps(limit))

    def _keep(self) -> None:
        """Let another supervisor follow one that is gone, as the keeper sensor does."""
        if self._supervisor is None or self._supervisor.poll() is not None:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "streaming.service", "supervise", self.pipeline.name],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )

    def _kill(self) -> None:
        before = look(self.lake, self.pipeline).process
        if before is None or self._supervisor is None:
            return
        members = family(before.pid)
        victim = self._random.choice(["driver", "JVM", "supervisor"])
        number = self._random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
        java = jvms(members)
        pids = {"driver": before.pid, "supervisor": self._supervisor.pid}
        pid = java[0].pid if victim == "JVM" and java else pids.get(victim, before.pid)
        at = time.monotonic()
        kill = Kill(self.seconds, f"{victim} {number.name}")
        self.record.kills.append(kill)
        self._recovering = True
        os.kill(pid, number)
        kill.orphans = orphans(members)
        # The killed process may have committed more than it had told.
        newest = newest_in_logs(self.lake, self.pipeline)

        def commits_again() -> bool:
            process = look(self.lake, self.pipeline).process
            return process is not None and process.pid != before.pid and (process.newest_batch or -1) > newest

        if until(commits_again, 90) is not None:
            kill.recovered_after = time.monotonic() - at
        self._recovering = False

    def _sample(self) -> None:
        process = look(self.lake, self.pipeline).process
        if process is not None and process.memory_bytes and process.newest_batch is not None:
            self.record.memory.append((self.seconds, process.memory_bytes))

    def _await_backlog(self) -> None:
        def worked_off() -> bool:
            self._keep()
            process = look(self.lake, self.pipeline).process
            return process is not None and process.items_waiting == 0 and process.phase == "running"

        until(worked_off, 600)

    def tidemark(self, *arguments: str) -> None:
        """Run a command of the platform, and note its exit code."""
        command = [sys.executable, "-c", "from platform_assets.cli import main; main()", *arguments]
        completed = subprocess.run(
            command,
            env=self._environment,
            stdout=self._output,
            stderr=self._output,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        self.record.runs.setdefault(arguments[0], []).append(completed.returncode)


def main() -> None:
    """Soak, audit, and write the record; exit 1 where a demand does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=2013)
    parser.add_argument("--keyed", action="store_true", help="keyed functions and rules in place of views")
    arguments, folder = begin(parser)
    started = datetime.now(UTC)
    pipeline = keyed_meters.pipeline if arguments.keyed else meters.pipeline
    soak = Soak(folder, arguments.minutes, arguments.seed, pipeline)
    soak.run()
    soak.tidemark("audit", pipeline.name)
    demands, times = demands_of(soak.lake, pipeline, soak.record, soak.record.runs["audit"][-1], started)
    demands += as_undisturbed(soak.lake, pipeline, folder / "undisturbed")
    (folder / "record.json").write_text(json.dumps(asdict(soak.record), indent=1))
    draw(folder / "record.png", soak.record, times)
    conclude(folder / "record.md", demands)


if __name__ == "__main__":
    main()

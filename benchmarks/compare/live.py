"""P5: at ten thousand events a second, how long results take from when their window can close, here and in Flink."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.compare.arena import side_by_side
from benchmarks.compare.bars import at_most
from benchmarks.compare.data import Expected, Shape, lines
from benchmarks.demands import PROJECT, Demand, console
from benchmarks.pipelines.live import DELAY_SECONDS, WINDOW_SECONDS, per_window, pipeline
from benchmarks.processes import code_of, until
from benchmarks.readings import land
from streaming import Lake

A_SECOND = 10_000
_FILE_EVERY = 0.25
DISORDER = 1 / 8
WARM_AFTER, LASTS = 40.0, 130.0
_LOOKS_EVERY = 0.02
_BEGINS_WITHIN = 120.0

Results = Callable[[], list[float]]
"""The ends of the windows, in seconds since the epoch, whose results have come to be read since the last call."""


def latency(work: Path, flink: Path, times: int) -> list[Demand]:
    """The 99th percentile over all results, in turn."""
    ratio = side_by_side(times, lambda: run_live(work).p99, lambda: _flink(work, flink).p99)
    times_of_each = f"{ratio}; {', '.join(f'{our:.1f}' for our in ratio.ours)} s against " + ", ".join(
        f"{their:.1f}" for their in ratio.theirs
    )
    what, _, holds = at_most("P5 window closed to result readable, p99, vs Flink", ratio, 0.5)
    return [(what, f"{times_of_each} s", holds)]


class Feed:
    """Lands a file of events every quarter of a second, and knows since when each window can be closed."""

    def __init__(self, landing: Path, shape: Shape | None = None) -> None:
        self.closed: dict[float, float] = {}
        """By end of window, when the file came that lets it be closed; both in seconds since the epoch."""
        self._landing = landing
        self._shape = shape or Shape(0, keys=1_000, a_second=A_SECOND, disorder=DISORDER)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed)
        landing.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _feed(self) -> None:
        shape, begin = self._shape, time.time()
        rows, drawn = int(shape.a_second * _FILE_EVERY), random.Random(shape.seed)
        number = 0
        while not self._over.is_set():
            text = "".join(lines(shape, drawn, begin + number * _FILE_EVERY, rows, Expected()))
            number += 1
            newest = begin + number * _FILE_EVERY
            self._over.wait(max(0.0, newest - time.time()))
            land(self._landing, f"{number:06}", text)
            end = (newest - DELAY_SECONDS) // WINDOW_SECONDS * WINDOW_SECONDS
            self.closed.setdefault(end, time.time())


@dataclass(frozen=True)
class Waits:
    """Percentiles of how long results took to be readable, in seconds."""

    p50: float
    p99: float


def run_live(work: Path, project: Path = PROJECT) -> Waits:
    """A stream of Tidemark in a lake at `work`; `project` may be the checkout of another version."""
    shutil.rmtree(work, ignore_errors=True)
    lake = Lake(str(work))
    environment = {
        "TIDEMARK_HOME": lake.root,
        "TIDEMARK_PIPELINES": "benchmarks.pipelines",
    }
    versions = [0]

    def results() -> list[float]:
        uri = lake.first(per_window)
        if not DeltaTable.is_deltatable(uri):
            return []
        table = DeltaTable(uri)
        if table.version() == versions[0]:
            return []
        read, versions[0] = versions[0], table.version()
        ends: list[float] = []
        for version in range(read + 1, versions[0] + 1):
            added = (Path(uri) / "_delta_log" / f"{version:020}.json").read_text()
            ends += _ends(Path(uri), added)
        return ends

    command = [sys.executable, "-m", "streaming.service", "supervise", pipeline.name]
    return _measured(
        "tidemark", command, environment | code_of(project), Path(pipeline.stream.source.location(lake)), results
    )


def _ends(table: Path, commit: str) -> list[float]:
    added = [json.loads(line)["add"]["path"] for line in commit.splitlines() if '"add":' in line]
    columns = [pq.ParquetFile(table / path).read(["window_end"])["window_end"] for path in added]
    return [end.timestamp() for column in columns for end in column.to_pylist()]


def _flink(work: Path, python: Path) -> Waits:
    shutil.rmtree(work, ignore_errors=True)
    landing, windows = work / "in", work / "windows"
    parts_read: set[Path] = set()

    def results() -> list[float]:
        window_starts: list[float] = []
        for path in windows.rglob("part-*"):
            if path in parts_read:
                continue
            parts_read.add(path)
            starts = [line.split(",")[1].strip('"') for line in path.read_text().splitlines()]
            window_starts += [datetime.fromisoformat(start).replace(tzinfo=UTC).timestamp() for start in starts]
        return [start + WINDOW_SECONDS for start in window_starts]

    job = PROJECT / "benchmarks/compare/flink_job.py"
    return _measured("flink", [str(python), str(job), str(landing), str(work), "live", "-"], {}, landing, results)


def _measured(name: str, command: list[str], environment: dict[str, str], landing: Path, results: Results) -> Waits:
    """The waits for all results of windows that closed once the contender was warm."""
    waits: list[float] = []
    with Feed(landing) as feed, running(command, environment, landing.parent / "output.log"):
        if until(results, _BEGINS_WITHIN) is None:
            raise RuntimeError(f"{name} gave no result: {(landing.parent / 'output.log').read_text()[-3000:]}")
        warm, ends = time.time() + WARM_AFTER, time.time() + LASTS
        while time.time() < ends:
            now = time.time()
            waits += [now - feed.closed[end] for end in results() if feed.closed.get(end, 0) > warm]
            time.sleep(_LOOKS_EVERY)
    p50, p99 = np.percentile(waits, [50, 99])
    console.print(f"  {name:9} {len(waits):>8,} results: p50 {p50:.1f} s, p99 {p99:.1f} s", highlight=False)
    return Waits(float(p50), float(p99))


@contextmanager
def running(command: list[str], environment: dict[str, str], output: Path) -> Iterator[None]:
    """The command runs until the end, when it is asked to stop; what it says goes to `output`."""
    with output.open("ab") as log_file:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=log_file,
            stderr=log_file,
            start_new_session=True,
        )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)

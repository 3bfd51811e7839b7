"""The time that the results of a day take after it has ended, with its rows in the log and others coming in.

`python -m benchmarks.midnight --rows 5000000` lands so many rows of a day for 100,000 keys, lets a stream work them off
beside a thousand rows a second of the present, and waits for the end of that day, which is a few minutes ahead.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from pathlib import Path

from benchmarks.compare.data import Expected, Shape, lines
from benchmarks.compare.live import running
from benchmarks.demands import begin, conclude, console
from benchmarks.pipelines import daily
from benchmarks.pipelines.live import DELAY_SECONDS
from benchmarks.processes import until
from benchmarks.readings import land
from streaming import Lake
from streaming.service.overview import look
from streaming.service.status import ProcessStatus
from streaming.tables import delta

_KEYS, _A_SECOND, _ROWS_A_FILE = 100_000, 1_000, 100_000
_BEHIND = 23 * 3_600
"""Seconds of event time before the present over which the rows of the day are spread."""
_DISORDER = 1 / 8
_FEW_FILES = 3
_WITHIN = 60.0


def load(landing: Path, rows: int, now: float) -> None:
    """Rows of the day until now."""
    shape, drawn = Shape(0, keys=_KEYS, a_second=rows / _BEHIND, disorder=_DISORDER), random.Random(1)
    for number in range(-(-rows // _ROWS_A_FILE)):
        begins = now - _BEHIND + number * _ROWS_A_FILE / shape.a_second
        of_file = min(_ROWS_A_FILE, rows - number * _ROWS_A_FILE)
        land(landing, f"{number:06}", "".join(lines(shape, drawn, begins, of_file, Expected())))


def feed(landing: Path, over: threading.Event) -> None:
    """A file of the last second's rows, each second."""
    shape, drawn = Shape(0, keys=_KEYS, a_second=_A_SECOND, disorder=_DISORDER), random.Random(2)
    begins = time.time()
    while not over.wait(max(0.0, begins + 1 - time.time())):
        land(landing, f"live-{int(begins)}", "".join(lines(shape, drawn, begins, _A_SECOND, Expected())))
        begins += 1


def main() -> None:
    """Measure; exit 1 where the results are not there in time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--minutes", type=float, default=6, help="from the start of the stream to the end of the day")
    arguments, folder = begin(parser)
    lake, output = Lake(str(folder / "lake")), folder / "output.log"
    landing = Path(daily.daily.source.location(lake))
    landing.mkdir(parents=True)
    with console.status(f"landing {arguments.rows:,} rows"):
        load(landing, arguments.rows, time.time())
    midnight = int(time.time() + arguments.minutes * 60)
    environment = {"TIDEMARK_HOME": lake.root, daily.MIDNIGHT: str(midnight)}
    command = [sys.executable, "-m", "streaming.service", "supervise", daily.pipeline.name]
    over = threading.Event()
    feeder = threading.Thread(target=feed, args=(landing, over))
    uri = lake.first(daily.per_day)
    memory: list[int] = []

    def status() -> ProcessStatus | None:
        process = look(lake, daily.pipeline).process
        if process is not None and process.memory_bytes is not None:
            memory.append(process.memory_bytes)
        return process

    def worked_off() -> bool:
        process = status()
        return process is not None and process.items_waiting is not None and process.items_waiting < _FEW_FILES

    def results() -> int:
        """The number of results of the day."""
        status()
        table = delta.open_table(uri)
        if table is None:
            return 0
        ends = delta.contents(table, columns=["window_end"])["window_end"]
        return ends.cast("int64").to_pylist().count(midnight * 1_000_000)

    with running(command, environment, output):
        feeder.start()
        try:
            took = until(worked_off, midnight - time.time())
            console.print(f"rows of the day worked off after {took and round(took)} s", highlight=False)
            until(lambda: time.time() >= midnight, arguments.minutes * 60 + 1)
            until(results, 10 * _WITHIN)
            after, there = time.time() - midnight - DELAY_SECONDS, results()
        finally:
            over.set()
            feeder.join()
    demands = [
        ("the rows of the day are in the log before it ends", f"{took and round(took)} s", took is not None),
        (f"results within {_WITHIN:.0f} s after the clock has passed midnight", f"{after:.1f} s", after <= _WITHIN),
        ("a result of each key", f"{there:,} of {_KEYS:,}", there == _KEYS),
        ("peak memory of all processes", f"{max(memory) / 2**20:,.0f} MB", True),
    ]
    conclude(folder / "midnight.md", demands)


if __name__ == "__main__":
    main()

"""Ten million rows that gathered while a stream was away are worked off in bounded batches, and nothing is missing.

`make backlog ROWS=n` runs it: some minutes of steady load, an outage, the backlog, then the audit and a recount.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.demands import begin, conclude, console
from benchmarks.pipelines.meters import per_ten_seconds, pipeline
from benchmarks.processes import until
from benchmarks.readings import LandedReadings
from streaming import Lake
from streaming.audit.laws import audit
from streaming.base.intervals import utc_now
from streaming.log.batches import read_batches
from streaming.service.drain import drain
from streaming.service.overview import look
from streaming.service.status import ProcessStatus
from streaming.spark.session import start_session
from streaming.views.corrections import correct, current_results, plan, read_corrections
from streaming.views.results import read_first

STREAM = pipeline.stream
_ROWS_A_FILE = 5_000
_STEADY_FILE_EVERY = 1.0
_EVENT_TIME_A_FILE = timedelta(seconds=5)
_AT_MOST = 1.5


class Watched:
    """A stream under its supervisor; `memory` are resident bytes of all its processes, as it tells them."""

    def __init__(self, lake: Lake, output: Path) -> None:
        self._lake = lake
        self.memory: list[int] = []
        with output.open("ab") as log_file:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-m", "streaming.service", "supervise", STREAM.name],
                env={**os.environ, "TIDEMARK_HOME": lake.root},
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
            )

    def until(self, reached: Callable[[ProcessStatus], bool], within: float, each: Callable[[], None]) -> float:
        """Watch it until `reached`; the seconds that took.

        Raises:
            TimeoutError: it was not reached.
        """

        def look_again() -> bool:
            each()
            process = look(self._lake, pipeline).process
            if process is None or process.memory_bytes is None:
                return False
            self.memory.append(process.memory_bytes)
            return reached(process)

        seconds = until(look_again, within)
        if seconds is None:
            raise TimeoutError(f"not reached within {within:.0f} s")
        return seconds

    def end(self) -> None:
        """Stop at the boundary of a batch."""
        self._supervisor.terminate()
        self._supervisor.wait()


def steady(lake: Lake, output: Path, readings: LandedReadings, clock: list[datetime], minutes: float) -> list[int]:
    """A file a second, for so many minutes."""
    watched, over = Watched(lake, output), threading.Event()

    def feed() -> None:
        while not over.wait(_STEADY_FILE_EVERY):
            land(readings, clock)

    feeder = threading.Thread(target=feed)
    feeder.start()
    ends = time.monotonic() + minutes * 60
    watched.until(lambda process: time.monotonic() > ends, minutes * 60 + 60, lambda: None)
    over.set()
    feeder.join()
    watched.end()
    return watched.memory


def land(readings: LandedReadings, clock: list[datetime]) -> None:
    """The next file; event time goes on with the files, not with the wall clock."""
    clock[0] += _EVENT_TIME_A_FILE
    readings.land(_ROWS_A_FILE, clock[0])


def main() -> None:
    """Measure; exit 1 where a demand does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--steady-minutes", type=float, default=3)
    parser.add_argument("--seed", type=int, default=2013)
    arguments, folder = begin(parser)
    lake, output = Lake(str(folder / "lake")), folder / "output.log"
    readings = LandedReadings(Path(STREAM.source.location(lake)), arguments.seed)
    clock = [datetime(2026, 1, 1, tzinfo=UTC)]

    console.print(f"{arguments.steady_minutes:g} minutes of {_ROWS_A_FILE:,} rows a second")
    steady_memory = steady(lake, output, readings, clock, arguments.steady_minutes)
    console.print(f"peak {max(steady_memory) / 2**20:,.0f} MB", highlight=False)
    before, batches_before = readings.generated, len(read_batches(lake, STREAM))
    with console.status("landing the backlog"):
        while readings.generated - before < arguments.rows:
            land(readings, clock)

    watched, reported_at = Watched(lake, output), [0.0]

    def report() -> None:
        process = look(lake, pipeline).process
        if process is not None and process.backlog and time.monotonic() - reported_at[0] > 10:
            reported_at[0] = time.monotonic()
            console.print(
                f"{process.waiting}, {process.processing_rate:,.0f} rows/s, "
                f"{(process.memory_bytes or 0) / 2**20:,.0f} MB",
                highlight=False,
            )

    took = watched.until(lambda process: process.items_waiting == 0, 3600, report)
    watched.end()
    worked_off = readings.generated - before
    batches = len(read_batches(lake, STREAM)) - batches_before

    spark = start_session()
    drain(spark, lake, pipeline, end_of_input=True)
    for view in pipeline.views:
        correct(spark, lake, view, [entry.day for entry in plan(spark, lake, view)], utc_now)
    broken = [finding for finding in audit(spark, lake, pipeline) if finding.broken]
    current = current_results(
        read_first(spark, lake, per_ten_seconds), read_corrections(spark, lake, per_ten_seconds), per_ten_seconds, None
    )
    windows = {
        (row["meter"], int(row["start"])): row["readings"]
        for row in current.selectExpr("meter", "unix_seconds(window_start) div 10 as start", "readings").collect()
    }
    peak, usual = max(watched.memory), max(steady_memory)
    demands = [
        (
            f"{worked_off:,} rows worked off",
            f"{took:.0f} s, {batches} batches, {worked_off / took:,.0f} rows/s",
            True,
        ),
        (
            f"peak memory at most {_AT_MOST} x that of the steady load",
            f"{peak / 2**20:,.0f} MB = {peak / usual:.2f} x {usual / 2**20:,.0f} MB",
            peak <= _AT_MOST * usual,
        ),
        ("every law of the audit", f"{len(broken)} broken", not broken),
        ("windows = a recount without the platform", f"{len(windows):,} windows", windows == dict(readings.windows)),
    ]
    conclude(folder / "backlog.md", demands)


if __name__ == "__main__":
    main()

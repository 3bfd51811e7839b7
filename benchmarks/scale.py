"""Where one driver ends: `python -m benchmarks.scale`.

What a batch costs the driver, by what it is made of, and what a row costs the executors of a standalone cluster with
one worker and with two. All of it is CPU, as the machine may be shared; the record is `scale.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare.data import Shape, generate
from benchmarks.compare.measure import measure
from benchmarks.demands import Demand, begin, conclude, console
from benchmarks.processes import cpu_seconds, family, until
from benchmarks.scale_batches import ROWS
from platform_assets.demo.feeds.local_kafka import LocalKafka
from tests.support.standalone import Standalone

ROWS_A_BATCH = 200_000
_FILES_A_BATCH = 4
_WARM, _MEASURED = 4, 8
_COMMITTED_WITHIN = 600.0
_SETTINGS = {
    "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
    "TIDEMARK_SPARK_DRIVER_HOST": "127.0.0.1",
    "TIDEMARK_SPARK_EXECUTOR_MEMORY": "768m",
}


@dataclass(frozen=True)
class Cluster:
    """The cost of a batch of `ROWS_A_BATCH` rows in CPU seconds of driver and executors, and how long it takes."""

    workers: int
    driver: float
    executors: float
    took: float

    @property
    def rows(self) -> float:
        """Rows that a core of the executors takes in a second."""
        return ROWS_A_BATCH / self.executors

    @property
    def cores(self) -> float:
        """The number of the executors' cores that keep one core of the driver busy."""
        return self.executors / self.driver


def on_cluster(folder: Path, workers: int) -> Cluster:
    """Drain into a log on so many workers of a core, and look from the outside while batches are committed.

    Raises:
        RuntimeError: a batch is not committed in time.
    """
    shape = Shape(ROWS_A_BATCH * (_WARM + _MEASURED + 1), a_file=ROWS_A_BATCH // _FILES_A_BATCH)
    source, _ = generate(folder / "data", shape)
    work = folder / f"{workers}-workers"
    with Standalone(work / "spark", workers) as cluster, (work / "driver.log").open("wb") as log:
        command = ["benchmarks.compare.contenders", "log", str(source), str(work / "lake"), str(_FILES_A_BATCH)]
        driver = subprocess.Popen(
            [sys.executable, "-m", *command, str(work / "result.json")],
            env=os.environ | _SETTINGS | {"TIDEMARK_MASTER": cluster.url},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        try:
            before = _looked_at(driver, cluster, work, _WARM)
            after = _looked_at(driver, cluster, work, _WARM + _MEASURED)
        finally:
            for member in reversed(family(driver.pid)):
                member.kill()
            driver.wait()
    return Cluster(workers, *((now - then) / _MEASURED for then, now in zip(before, after, strict=True)))


def _looked_at(
    driver: subprocess.Popen[bytes], cluster: Standalone, work: Path, batches: int
) -> tuple[float, float, float]:
    """CPU of driver and executors so far, and the time, once so many batches are committed."""
    committed = work / "lake" / "_checkpoints" / "readings" / "log" / "commits" / f"{batches - 1}"
    if until(lambda: committed.exists() or driver.poll() is not None, _COMMITTED_WITHIN) is None or driver.poll():
        raise RuntimeError(f"batch {batches} was not committed:\n{(work / 'driver.log').read_text()[-2000:]}")
    of_executors = sum(cpu_seconds(executor.pid) for executor in cluster.executors())
    return cpu_seconds(driver.pid), of_executors, time.monotonic()


def on_one_machine(folder: Path) -> dict[str, float]:
    """CPU seconds of a batch of few rows, by what it is made of, in a process of its own beside a broker."""
    broker = LocalKafka(folder / "broker")
    broker.start()
    try:
        command = [sys.executable, "-m", "benchmarks.scale_batches", str(folder / "batches"), broker.servers]
        return measure(command, {"TIDEMARK_MASTER": "local[2]"}).result
    finally:
        broker.kill()


def main() -> None:
    """Measure both, and write the record."""
    _, folder = begin(argparse.ArgumentParser(description=__doc__), "soak/scale")
    batches = on_one_machine(folder)
    console.print("batches on one machine are measured", highlight=False)
    one, two = (on_cluster(folder, workers) for workers in (1, 2))
    cost = ["| a batch | CPU s | batches a second and core |", "|---|---|---|"]
    cost += [f"| {ROWS:,} rows: {what} | {each:.2f} | {1 / each:.1f} |" for what, each in batches.items()]
    rows = [
        "| workers of one core | rows a second and core of executors | CPU s of the driver a batch "
        "| executor cores that one core of the driver keeps busy | s a batch |",
        "|---|---|---|---|---|",
    ]
    rows += [
        f"| {each.workers} | {each.rows:,.0f} | {each.driver:.2f} | {each.cores:.0f} | {each.took:.1f} |"
        for each in (one, two)
    ]
    demands: list[Demand] = [
        _at_least("rows a second and core of executors, two workers vs one", two.rows / one.rows, 0.8),
        _at_least("CPU of the driver a batch, one worker vs two", one.driver / two.driver, 0.8),
    ]
    conclude(folder / "scale.md", demands, "\n".join(cost), f"{ROWS_A_BATCH:,} rows a batch:", "\n".join(rows))


def _at_least(what: str, ratio: float, demand: float) -> Demand:
    return f"{what}: at least {demand} x", f"{ratio:.2f} x", ratio >= demand


if __name__ == "__main__":
    main()

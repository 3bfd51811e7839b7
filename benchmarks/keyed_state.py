"""The cost of a keyed function's step, over how many keys have state: `python -m benchmarks.keyed_state FOLDER`.

A batch gives every key its state. Then come batches of 10,000 rows: of keys drawn from all, and of the same thousand
keys again and again. What is counted is the CPU of the step alone, of this process and all it has started, and the most
memory that a task in Python, and all processes together, ever had.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from benchmarks.processes import cpu_seconds, family, jvms, peak_memory
from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Lake, Pipeline, Selected, Stream, drain
from streaming.base import utc_now
from streaming.declare import STATE
from streaming.operators import runtime_of
from streaming.spark import start_session
from streaming.tables import delta

KEYS = (100_000, 1_000_000)
ROWS = 10_000
_BUSY = 1_000
_WARM, _ROUNDS = 3, 7

readings = Stream(
    "readings",
    Files("landing/readings"),
    Json("id bigint not null, at timestamp not null, value double"),
    "at",
    BoundedOutOfOrderness("0 seconds"),
)


def average(key: Key, row: Any) -> None:
    """Keep sum, number and newest time of a key, and tell when a value is far from what was usual."""
    if key.rows and row.value > 4 * key.total / key.rows:
        key.emit(value=row.value)
    key.total, key.rows, key.newest = (key.total or 0.0) + row.value, (key.rows or 0) + 1, row.at


averages = Keyed("averages", readings, ("id",), "total double, rows bigint, newest timestamp", "value double", average)

# A pipeline has a view, and what it costs is not to be measured.
nothing = Selected("nothing", readings, where="false")


class Measured:
    """A lake in which so many keys have state."""

    def __init__(self, spark: SparkSession, folder: Path, keys: int) -> None:
        self._spark, self._keys = spark, keys
        self._lake = Lake(str(folder / f"{keys}"))
        self._landing = folder / f"{keys}" / "landing" / "readings"
        self._landing.mkdir(parents=True)
        self._second, self._drawn = 0, random.Random(keys)
        self._ingest(range(keys))
        self._step()

    @property
    def state(self) -> tuple[int, int]:
        """Bytes and files of the state."""
        table = delta.open_table(self._lake.table(averages, STATE))
        assert table is not None
        return delta.size(self._lake.table(averages, STATE)), len(table.file_uris())

    def cpu(self, of: int) -> float:
        """CPU seconds of the step that follows `ROWS` rows of the first `of` keys."""
        self._ingest(self._drawn.randrange(of) * (self._keys // of) for _ in range(ROWS))
        before = cpu_seconds()
        self._step()
        return cpu_seconds() - before

    @property
    def memory(self) -> tuple[int, int]:
        """Bytes that the largest task in Python had at its peak, and the sum of the peaks of all processes."""
        _, *started = family(os.getpid())
        java = jvms(started)
        tasks = [peak_memory(member) for member in started if member not in java]
        return max(tasks), sum(tasks) + sum(map(peak_memory, [*java, psutil.Process()]))

    def measure(self) -> tuple[float, float]:
        """The medians of steps over rows of all keys, and over those of few."""
        costs = [(self.cpu(self._keys), self.cpu(_BUSY)) for _ in range(_WARM + _ROUNDS)][_WARM:]
        spread, busy = zip(*costs, strict=True)
        return statistics.median(spread), statistics.median(busy)

    def _ingest(self, ids: Iterable[int]) -> None:
        self._second += 1
        at = f"2026-01-01T{self._second // 3600:02}:{self._second // 60 % 60:02}:{self._second % 60:02}Z"
        lines = (json.dumps({"id": each, "at": at, "value": self._drawn.random()}) for each in ids)
        (self._landing / f"{self._second:06}.json").write_text("\n".join(lines))
        drain(self._spark, self._lake, Pipeline(readings, (nothing,)))

    def _step(self) -> None:
        for step in runtime_of(averages, self._lake).steps(self._spark, utc_now):
            step.run()


def main(folder: Path) -> None:
    """Measure each size, the smaller ones first, and print a Markdown row of it."""
    spark = start_session()
    print(
        f"| keys | state, MB | files | step over {ROWS:,} rows of all keys, CPU s | of {_BUSY:,} keys, CPU s ", end=""
    )
    print("| a task, MB | in all, MB |")
    print("|---|---|---|---|---|---|---|")
    for keys in KEYS:
        lake = Measured(spark, folder, keys)
        spread, busy = lake.measure()
        size, files = lake.state
        task, whole = (each / 2**20 for each in lake.memory)
        print(
            f"| {keys:,} | {size / 2**20:.1f} | {files} | {spread:.2f} | {busy:.2f} | {task:,.0f} | {whole:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))

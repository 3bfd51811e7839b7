"""The cost of sensors, schedules and maintenance per tick, over the number of commits that a stream has made.

`python -m benchmarks.ticks FOLDER` prints a table and draws `FOLDER/ticks.png`. The logs are made, not ingested: real
entries and checkpoints of the Delta format, with what the stream says of its batches, but without data files and with a
checkpoint every thousand entries, where the stream writes one every ten. What is measured is the history alone.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
from matplotlib.figure import Figure

from docs.examples.late_counts import count_by_sensor, pipeline
from platform_assets.events.backlog import may_need_corrections, waiting
from streaming import log
from streaming.lake import Lake
from streaming.operations import maintain, needs_maintenance
from tests.support.histories import grow_corrections, grow_log
from tests.support.instants import NOW

COMMITS = (1_000, 10_000, 50_000, 200_000)
_TIMES = 5
_NEW = 60


def measure(lake: Lake, commits: int) -> dict[str, float]:
    """Median seconds of each kind of tick, when the log has as many commits and was last looked at `_NEW` before."""
    grow_log(lake, pipeline.stream, count_by_sensor.name, commits - _NEW)
    grow_corrections(lake, count_by_sensor, min(commits, 10_000))
    log.archive_batches(lake, pipeline.stream)
    maintain(lake, pipeline, now=lambda: NOW)
    grow_log(lake, pipeline.stream, count_by_sensor.name, commits)
    with dg.DagsterInstance.ephemeral() as instance:
        ticks: dict[str, Callable[[], Any]] = {
            "late data sensor": lambda: waiting(instance, lake, count_by_sensor),
            "corrections schedule": lambda: may_need_corrections(instance, lake, count_by_sensor),
            "maintenance schedule": lambda: needs_maintenance(lake, pipeline, lambda: NOW),
        }
        costs = {name: statistics.median(_seconds(tick) for _ in range(_TIMES)) for name, tick in ticks.items()}
    later = NOW + timedelta(hours=1)
    return costs | {"maintenance": _seconds(lambda: maintain(lake, pipeline, now=lambda: later))}


def draw(seconds: dict[int, dict[str, float]]) -> Figure:
    """Seconds over commits, both logarithmic, beside what reading every commit took."""
    figure = Figure(figsize=(9, 5.5), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    commits = sorted(seconds)
    for name in seconds[commits[0]]:
        axes.plot(commits, [seconds[each][name] for each in commits], marker="o", label=name)
    axes.plot(commits, [0.00033 * each for each in commits], "--", color="grey", label="reading every commit (before)")
    axes.axhline(60, color="red", linewidth=0.8, label="end of a Dagster tick")
    axes.set(xscale="log", yscale="log", xlabel="commits of the log", ylabel="seconds a tick")
    axes.legend()
    return figure


def main(folder: Path) -> None:
    """Measure, print and draw."""
    lake, seconds = Lake(str(folder / "lake")), {}
    for commits in COMMITS:
        seconds[commits] = measure(lake, commits)
        print(
            f"{commits:>8,}  " + "  ".join(f"{name} {took:.3f} s" for name, took in seconds[commits].items()),
            flush=True,
        )
        draw(seconds).savefig(folder / "ticks.png")


def _seconds(act: Callable[[], Any]) -> float:
    started = time.perf_counter()
    act()
    return time.perf_counter() - started


if __name__ == "__main__":
    main(Path(sys.argv[1]))

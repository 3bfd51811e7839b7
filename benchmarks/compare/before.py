"""Views beside those of another version of Tidemark, which lies in a checkout of its own.

The checkout needs this version's `benchmarks`, so that both are measured by the same code.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.compare.arena import Arena, Ratio, side_by_side
from benchmarks.compare.bars import at_most
from benchmarks.compare.data import Shape
from benchmarks.compare.live import WARM_AFTER, run_live
from benchmarks.compare.measure import Measured
from benchmarks.demands import PROJECT, Demand, console
from benchmarks.pipelines.live import per_window
from streaming import Lake, Windowed
from streaming.log.batches import Batch
from streaming.tables.history import actions_of, commits_of

_COSTS: dict[str, Callable[[Measured], float]] = {
    "CPU": lambda run: run.cpu,
    "peak memory": lambda run: run.peak,
    "end of input to results": lambda run: float(run.result["closed_after"]),
}


def views(arena: Arena, rows: int, times: int, before: Path) -> list[Demand]:
    """The cost of first results in CPU beside their log: a drain with a view less one without."""
    shape = Shape(rows)

    def part(project: Path) -> float:
        whole = arena.run("tidemark", shape, project=project).cpu
        return whole - arena.run("log", shape, project=project).cpu

    ratio = side_by_side(times, lambda: part(PROJECT), lambda: part(before))
    return [at_most("CPU of the views' part of a drain, vs the version before", ratio, 0.7)]


def kinds(arena: Arena, rows: int, times: int, before: Path) -> list[Demand]:
    """The cost of windows that overlap much, that are open for long with many keys, and that merge."""
    shapes = {
        "hours": ("windows of an hour by the minute", Shape(rows, keys=1_000, a_second=200)),
        "days": ("windows of a day, 100,000 keys", Shape(rows, keys=100_000)),
        "sessions": ("sessions of 30 minutes, 10,000 open", Shape(rows, keys=10_000, a_second=200)),
    }
    demands: list[Demand] = []
    for contender, (what, shape) in shapes.items():
        run = partial(arena.run, contender, shape)
        pairs = [(run(project=PROJECT), run(project=before)) for _ in range(times)]
        for name, of in _COSTS.items():
            ratio = Ratio([of(ours) for ours, _ in pairs], [of(theirs) for _, theirs in pairs])
            demands.append(at_most(f"{what}: {name}, vs the version before", ratio, 1.0))
    return demands


def answers(work: Path, times: int, before: Path) -> list[Demand]:
    """At ten thousand events a second: from the commit of the log that closes a window to that of its results."""

    def median(project: Path) -> float:
        run_live(work, project)
        waits = list(answered_after(Lake(str(work)), per_window))
        console.print(
            f"  {project.name:9} {len(waits):>5} windows: p50 {statistics.median(waits):.2f} s", highlight=False
        )
        return statistics.median(waits)

    ratio = side_by_side(times, lambda: median(PROJECT), lambda: median(before))
    seconds = [", ".join(f"{wait:.2f}" for wait in each) for each in (ratio.ours, ratio.theirs)]
    what, figures, holds = at_most("log commit to readable result, p50, vs the version before", ratio, 0.4)
    return [(what, f"{figures}; {seconds[0]} s against {seconds[1]} s", holds)]


def answered_after(lake: Lake, view: Windowed) -> Iterator[float]:
    """Seconds by which the results of each window followed the commit that closed it, once it was warm."""
    closings = list(_closings(lake.log(view.of)))
    warm = min(at for _, at in closings) + WARM_AFTER
    for end, published in _published(lake.first(view)):
        closed = min((at for watermark, at in closings if watermark >= end), default=published)
        if closed > warm:
            yield published - closed


def _closings(log: str) -> Iterator[tuple[datetime, float]]:
    """Each watermark that a commit of the log has left behind, and when, in seconds since the epoch."""
    for commit in commits_of(DeltaTable(log)):
        if isinstance(commit["userMetadata"], dict) and "clock" in commit["userMetadata"]:
            watermark = Batch.from_json(commit["userMetadata"]).after.watermark
            if watermark is not None:
                yield watermark, commit["timestamp"] / 1000


def _published(uri: str) -> Iterator[tuple[datetime, float]]:
    """The ends of windows with results, each with when these were committed, in seconds since the epoch."""
    table = DeltaTable(uri)
    for commit in commits_of(table):
        added = [action["add"]["path"] for action in actions_of(table, commit["version"]) or () if "add" in action]
        ends = {end for path in added for end in pq.ParquetFile(Path(uri, path)).read(["window_end"])[0].to_pylist()}
        yield from ((end, commit["timestamp"] / 1000) for end in ends)

"""Streams of two thousand rows a second: from the commit of a row to what an operator makes of it and can be read.

Of a join that is the second row of a pair. It is compared with windows over one of the streams in the same process:
from the commit that closes a window to its results.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.before import answered_after
from benchmarks.compare.data import Shape
from benchmarks.compare.live import DISORDER, LASTS, WARM_AFTER, Feed, running
from benchmarks.demands import Demand
from benchmarks.pipelines import live_alerts, live_pairs, live_view
from benchmarks.processes import until
from streaming import Joined, Keyed, Lake, Pipeline, View, Windowed
from streaming.declare import CHANGES, CURRENT, Operator
from streaming.tables.delta import exists, opened
from streaming.tables.history import commits_of

A_SECOND = 2_000
_BEGINS_WITHIN = 180.0
_FEWEST = 30


def pairs(work: Path) -> list[Demand]:
    """An interval join of two streams."""
    what = "J5 second row's commit to readable pair, p50, vs a window's"
    return _latency(work, live_pairs.pipeline, live_pairs.pairs, live_pairs.counts, what)


def alerts(work: Path) -> list[Demand]:
    """A keyed function over one stream."""
    what = "F4 row's commit to readable alert, p50, vs a window's"
    return _latency(work, live_alerts.pipeline, live_alerts.alerts, live_alerts.counts, what)


def views(work: Path) -> list[Demand]:
    """An SQL view over one stream: its row in the view's own table, and in what is published for everybody."""
    lake, view = _ran(work, live_view.pipeline, live_view.totals), live_view.totals
    told = statistics.median(_enough(_followed_after(lake, view)))
    published = statistics.median(_enough(_published_after(lake, view)))
    what = f"row's commit to readable row of an SQL view, p50, {A_SECOND:,} rows/s: at most 3 s"
    return [(what, f"{published:.2f} s; {told:.2f} s to its own table", published <= 3)]


def _latency(work: Path, pipeline: Pipeline, operator: Joined | Keyed, counts: Windowed, what: str) -> list[Demand]:
    """Medians, once both are warm.

    Raises:
        RuntimeError: it has followed nothing, or so little that a median says nothing.
    """
    lake = _ran(work, pipeline, operator)
    of_rows, of_windows = _enough(_followed_after(lake, operator)), list(answered_after(lake, counts))
    medians = Ratio([statistics.median(of_rows)], [statistics.median(of_windows)])
    what, figures, holds = at_most(what, medians, 2)
    seconds = f"{medians.ours[0]:.2f} s against {medians.theirs[0]:.2f} s, {len(of_rows)} batches"
    return [(what, f"{figures}; {seconds}", holds)]


def _enough(seconds: Iterable[float]) -> list[float]:
    """All of them.

    Raises:
        RuntimeError: they are so few that a median says nothing.
    """
    of_batches = list(seconds)
    if len(of_batches) < _FEWEST:
        raise RuntimeError(f"only {len(of_batches)} batches were followed: something else keeps this machine busy.")
    return of_batches


def _ran(work: Path, pipeline: Pipeline, operator: Operator) -> Lake:
    """The lake in which a pipeline ran for a while, two thousand rows a second of each stream.

    Raises:
        RuntimeError: the operator has followed nothing.
    """
    shutil.rmtree(work, ignore_errors=True)
    lake = Lake(str(work))
    environment = {
        "TIDEMARK_HOME": lake.root,
        "TIDEMARK_PIPELINES": "benchmarks.pipelines",
    }
    command = [sys.executable, "-m", "streaming.service", "supervise", pipeline.name]
    with ExitStack() as stack:
        for seed, stream in enumerate(pipeline.streams):
            shape = Shape(0, a_second=A_SECOND, disorder=DISORDER, seed=seed)
            stack.enter_context(Feed(Path(stream.source.location(lake)), shape))
        stack.enter_context(running(command, environment, work / "output.log"))
        if until(lambda: exists(lake.table(operator)), _BEGINS_WITHIN) is None:
            raise RuntimeError(f"nothing was followed: {(work / 'output.log').read_text()[-3000:]}")
        time.sleep(LASTS)
    return lake


def _followed_after(lake: Lake, operator: Operator) -> Iterator[float]:
    """Seconds by which what became of each batch of a log followed its commit, once it was warm."""
    for at, waits in _steps_after(lake, operator):
        yield from (at - committed for committed in waits)


def _published_after(lake: Lake, view: View) -> Iterator[float]:
    """Seconds by which a view's published rows followed the commit of each batch of a log, once it was warm."""
    looks, shown = _commits(lake.table(view, CHANGES), "step"), _commits(lake.table(view, CURRENT), "revision")
    for number, (_, waits) in enumerate(_steps_after(lake, view)):
        revision = next((says["revision"] for _, says in looks if says["step"] >= number), None)
        at = next((at for at, says in shown if revision is not None and says["revision"] >= revision), None)
        if at is not None:
            yield from (at - committed for committed in waits)


def _steps_after(lake: Lake, operator: Operator) -> Iterator[tuple[float, list[float]]]:
    """The instant of each step's commit, and those of the batches that it has followed, of warm ones alone."""
    committed = {
        stream.name: {says["batch"]: at for at, says in _commits(lake.log(stream), "batch")}
        for stream in operator.follows
    }
    warm = min(at for of_log in committed.values() for at in of_log.values()) + WARM_AFTER
    for at, metadata in _commits(lake.table(operator), "through"):
        waits = list[float]()
        for name in committed:
            # Of one log the commit says just the number.
            after, through = (
                metadata[to] if isinstance(metadata[to], int) else metadata[to][name] for to in ("after", "through")
            )
            waits += [committed[name][number] for number in range(after + 1, through + 1)]
        yield at, [each for each in waits if each > warm]


def _commits(uri: str, saying: str) -> list[tuple[float, dict[str, Any]]]:
    """The instant of each commit that says something by this name, and all that it says; the oldest first."""
    commits = reversed(commits_of(opened(uri)))
    says = ((each["timestamp"] / 1000, each["userMetadata"]) for each in commits)
    return [(at, metadata) for at, metadata in says if isinstance(metadata, dict) and saying in metadata]

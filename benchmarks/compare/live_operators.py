"""Streams of two thousand rows a second: from the commit of a row to what an operator makes of it and can be read.

Of a join that is the second row of a pair. It is compared with windows over one of the streams in the same process:
from the commit that closes a window to its results.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.before import answered_after
from benchmarks.compare.data import Shape
from benchmarks.compare.live import DISORDER, LASTS, WARM_AFTER, Feed, running
from benchmarks.demands import Demand
from benchmarks.pipelines import live_alerts, live_pairs
from benchmarks.processes import until
from streaming import Joined, Keyed, Lake, Pipeline, Windowed
from streaming.tables.delta import exists
from streaming.tables.history import commit_history

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


def _latency(work: Path, pipeline: Pipeline, operator: Joined | Keyed, counts: Windowed, what: str) -> list[Demand]:
    """Medians, once both are warm.

    Raises:
        RuntimeError: it has followed nothing, or so little that a median says nothing.
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
    of_rows, of_windows = list(_followed_after(lake, operator)), list(answered_after(lake, counts))
    if len(of_rows) < _FEWEST:
        raise RuntimeError(f"only {len(of_rows)} batches were followed: something else keeps this machine busy.")
    medians = Ratio([statistics.median(of_rows)], [statistics.median(of_windows)])
    what, figures, holds = at_most(what, medians, 2)
    seconds = f"{medians.ours[0]:.2f} s against {medians.theirs[0]:.2f} s, {len(of_rows)} batches"
    return [(what, f"{figures}; {seconds}", holds)]


def _followed_after(lake: Lake, operator: Joined | Keyed) -> Iterator[float]:
    """Seconds by which what became of each batch of a log followed its commit, once it was warm."""
    committed = {
        stream.name: {
            commit["userMetadata"]["batch"]: commit["timestamp"] / 1000
            for commit in commit_history(lake.log(stream))
            if isinstance(commit["userMetadata"], dict) and "batch" in commit["userMetadata"]
        }
        for stream in operator.follows
    }
    warm = min(at for of_log in committed.values() for at in of_log.values()) + WARM_AFTER
    for step in commit_history(lake.table(operator)):
        metadata = step["userMetadata"]
        if not isinstance(metadata, dict) or "through" not in metadata:
            continue
        for name in committed:
            # Of one log the commit says just the number.
            after, through = (
                metadata[at] if isinstance(metadata[at], int) else metadata[at][name] for at in ("after", "through")
            )
            for number in range(after + 1, through + 1):
                if committed[name][number] > warm:
                    yield step["timestamp"] / 1000 - committed[name][number]

"""Two streams of two thousand rows a second: from the commit of the second row of a pair to the pair that can be read.

It is compared with windows over one of them in the same process: from the commit that closes a window to its results.
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
from benchmarks.demands import PROJECT, Demand
from benchmarks.pipelines.live_pairs import counts, pairs, pipeline
from benchmarks.processes import until
from streaming import Lake
from streaming.tables.delta import exists
from streaming.tables.history import commit_history

A_SECOND = 2_000
_BEGINS_WITHIN = 180.0
_FEWEST = 30


def latency(work: Path) -> list[Demand]:
    """Medians, once both are warm.

    Raises:
        RuntimeError: it joined nothing, or so little that a median says nothing.
    """
    shutil.rmtree(work, ignore_errors=True)
    lake = Lake(str(work))
    environment = {
        "TIDEMARK_HOME": lake.root,
        "TIDEMARK_PIPELINES": "benchmarks.pipelines",
        "PYTHONPATH": str(PROJECT),
    }
    command = [sys.executable, "-m", "streaming.service", "supervise", pipeline.name]
    with ExitStack() as stack:
        for seed, stream in enumerate(pipeline.streams):
            shape = Shape(0, a_second=A_SECOND, disorder=DISORDER, seed=seed)
            stack.enter_context(Feed(Path(stream.source.location(lake)), shape))
        stack.enter_context(running(command, environment, work / "output.log"))
        if until(lambda: exists(lake.table(pairs)), _BEGINS_WITHIN) is None:
            raise RuntimeError(f"nothing was joined: {(work / 'output.log').read_text()[-3000:]}")
        time.sleep(LASTS)
    of_pairs, of_windows = list(_paired_after(lake)), list(answered_after(lake, counts))
    if len(of_pairs) < _FEWEST:
        raise RuntimeError(f"only {len(of_pairs)} batches were joined: something else keeps this machine busy.")
    medians = Ratio([statistics.median(of_pairs)], [statistics.median(of_windows)])
    what, seen, holds = at_most("J5 second row's commit to readable pair, p50, vs a window's", medians, 2)
    seconds = f"{medians.ours[0]:.2f} s against {medians.theirs[0]:.2f} s, {len(of_pairs)} batches"
    return [(what, f"{seen}; {seconds}", holds)]


def _paired_after(lake: Lake) -> Iterator[float]:
    """Seconds by which the pairs of each batch of either log followed its commit, once it was warm."""
    committed = {
        stream.name: {
            commit["userMetadata"]["batch"]: commit["timestamp"] / 1000
            for commit in commit_history(lake.log(stream))
            if isinstance(commit["userMetadata"], dict) and "batch" in commit["userMetadata"]
        }
        for stream in pipeline.streams
    }
    warm = min(at for of_log in committed.values() for at in of_log.values()) + WARM_AFTER
    for step in commit_history(lake.table(pairs)):
        told = step["userMetadata"]
        if not isinstance(told, dict) or "through" not in told:
            continue
        for name, through in told["through"].items():
            for number in range(told["after"][name] + 1, through + 1):
                if committed[name][number] > warm:
                    yield step["timestamp"] / 1000 - committed[name][number]

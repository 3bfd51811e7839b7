"""The bars of joins: against Spark's and Flink's own, and what a step costs over long logs and for late rows."""

from __future__ import annotations

import shutil
import statistics
import sys
from dataclasses import dataclass, field

from benchmarks.compare.arena import Arena, Ratio, WrongSums, side_by_side
from benchmarks.compare.bars import at_least, at_most
from benchmarks.compare.data import Shape, generate
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import Demand, console

_FILES_PER_BATCH = "5"


@dataclass
class _Joins:
    """Runs contenders on two streams of so many rows each; what they find has to be the same."""

    arena: Arena
    rows: int
    runs: dict[str, list[Measured]] = field(default_factory=dict)

    def cpu(self, contender: str) -> float:
        """CPU seconds of one run.

        Raises:
            WrongSums: it found other pairs than the runs before it.
        """
        arena = self.arena
        sources = [str(generate(arena.data, Shape(self.rows, seed=seed))[0]) for seed in (2013, 2014)]
        shutil.rmtree(arena.work, ignore_errors=True)
        arena.work.mkdir(parents=True)
        command = [*self._program(contender), *sources, str(arena.work), _FILES_PER_BATCH]
        measured = measure(command)
        self.runs.setdefault(contender, []).append(measured)
        console.print(
            f"  {contender:9} {measured.result['pairs']:>12,} pairs  {measured.wall:7.1f} s wall  "
            f"{measured.cpu:7.1f} s CPU  {measured.peak / 2**20:7,.0f} MB",
            highlight=False,
        )
        outcomes = {(run.result["pairs"], *run.result["sums"]) for runs in self.runs.values() for run in runs}
        if len(outcomes) > 1:
            raise WrongSums(f"joins differ: {outcomes}")
        return measured.cpu

    def peaks(self, ours: str, theirs: str) -> Ratio:
        """The ratio of the peak memory of two contenders, over all runs so far."""
        return Ratio(*([float(run.peak) for run in self.runs[contender]] for contender in (ours, theirs)))

    def _program(self, contender: str) -> list[str]:
        if contender == "flink":
            assert self.arena.flink is not None
            return [str(self.arena.flink), "-m", "benchmarks.compare.flink_join_job"]
        return [sys.executable, "-m", "benchmarks.compare.joins_job", contender]


def against_spark(arena: Arena, rows: int, times: int) -> list[Demand]:
    """The pairs of two streams against Spark's own join of them; both logs are written beside."""
    joins = _Joins(arena, rows)
    burnt = side_by_side(times, lambda: joins.cpu("tidemark"), lambda: joins.cpu("spark"))
    return [
        at_most("J1 CPU, logs + interval join vs Spark's join of two streams", burnt, 0.7),
        at_most("J1 peak memory, the same", joins.peaks("tidemark", "spark"), 1.2),
    ]


def against_flink(arena: Arena, rows: int, times: int) -> list[Demand]:
    """The pairs of two streams against Flink's join of them, which keeps the valid rows as well."""
    joins = _Joins(arena, rows)
    burnt = side_by_side(times, lambda: joins.cpu("tidemark"), lambda: joins.cpu("flink"))
    return [at_least("J2 rows per CPU second, logs + interval join vs Flink's", burnt.inverse(), 0.8)]


def outer(arena: Arena, rows: int, times: int) -> list[Demand]:
    """The cost of an outer join, which also tells of the rows of both sides that had no partner in time."""
    joins = _Joins(arena, rows)
    burnt = side_by_side(times, lambda: joins.cpu("outer"), lambda: joins.cpu("tidemark"))
    return [
        at_most("J6 peak memory, outer join vs inner join", joins.peaks("outer", "tidemark"), 1.2),
        at_most("J6 CPU, the same", burnt, 2),
    ]


def steps(arena: Arena, short: int, long: int) -> list[Demand]:
    """The cost of a join's step where each log has so many files, and where one of its rows is a week late."""
    shutil.rmtree(arena.work, ignore_errors=True)
    command = [sys.executable, "-m", "benchmarks.compare.join_steps_job", str(arena.work), str(short), str(long)]
    burnt = measure(command).result
    median = {name: statistics.median(of_name) for name, of_name in burnt.items()}
    console.print("  " + ", ".join(f"{name} {each:.2f} s CPU" for name, each in median.items()), highlight=False)
    longer, later = Ratio([median["long"]], [median["short"]]), Ratio([median["late"]], [median["long"]])
    return [
        at_most(f"J3 CPU of a join's step, {long:,} files a side vs {short:,}", longer, 1.3),
        at_most("J4 CPU of a join's step with rows a week late vs a usual one", later, 3),
    ]

"""The bars of keyed functions: against Spark's own state in Python, and against Flink's."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.compare.arena import Arena, Ratio, WrongSums, side_by_side
from benchmarks.compare.bars import at_least, at_most
from benchmarks.compare.data import Shape, generate
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import Demand, console

_STEPS_JOB = [sys.executable, "-m", "benchmarks.compare.keyed_steps_job"]
_MANY = ("8", "20")
_FEW = ("2", "3")
"""Steps to warm up, and those that count; few where one takes half a minute."""


@dataclass
class _Contest:
    """Runs contenders, each as a process; what they tell has to be the same."""

    totals: dict[str, list[float]] = field(default_factory=dict)

    def run(self, contender: str, command: list[str], work: Path) -> Measured:
        """One run in the empty folder `work`.

        Raises:
            WrongSums: it told something else than those before it.
        """
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        measured = measure(command)
        self.totals[contender] = measured.result["told"]
        step = f"  {measured.result['cpu']:.2f} s CPU a step" if "cpu" in measured.result else ""
        console.print(
            f"  {contender:9} {measured.result['told'][0]:>9,} told  {measured.wall:7.1f} s wall  "
            f"{measured.cpu:7.1f} s CPU  {measured.peak / 2**20:7,.0f} MB{step}",
            highlight=False,
        )
        if len({tuple(each) for each in self.totals.values()}) > 1:
            raise WrongSums(f"contenders differ: {self.totals}")
        return measured


def steps(arena: Arena, times: int) -> list[Demand]:
    """The step of 20,000 rows over 100,000 keys, the start of the process and a warm-up apart."""
    data = arena.data / "keyed-steps"
    if not data.exists():
        unfinished = data.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        measure([*_STEPS_JOB, "prepare", str(unfinished), "-", *_MANY])
        unfinished.rename(data)

    def against(other: str, times: int, number: tuple[str, str]) -> Ratio:
        contest = _Contest()

        def cpu(contender: str) -> float:
            command = [*_STEPS_JOB, contender, str(data), str(arena.work), *number]
            return float(contest.run(contender, command, arena.work).result["cpu"])

        return side_by_side(times, lambda: cpu("tidemark"), lambda: cpu(other))

    blobs, bare = (against(other, times, _MANY) for other in ("blobs", "blobs_to_parquet"))
    per_key = against("per_key", 1, _FEW)
    return [
        at_most("F1 CPU of a step, keyed function vs Spark's applyInPandasWithState, keys in few blobs", blobs, 1.2),
        at_most("F1 the same, where Spark writes bare Parquet and no Delta table", bare, 1.2),
        at_most("F2 CPU of a step, keyed function vs Spark's transformWithState", per_key, 0.3),
    ]


def against_flink(arena: Arena, rows: int, times: int) -> list[Demand]:
    """Log and function over one file, whose order Flink keeps as well, against its KeyedProcessFunction in Python."""
    source, _ = generate(arena.data, Shape(rows, a_file=rows))
    contest = _Contest()

    def cpu(contender: str) -> float:
        return contest.run(contender, [*programs[contender], str(source), str(arena.work), "1"], arena.work).cpu

    programs = {
        "tidemark": [sys.executable, "-m", "benchmarks.compare.keyed_job"],
        "flink": [str(arena.flink), "-m", "benchmarks.compare.flink_keyed_job"],
    }
    burnt = side_by_side(times, lambda: cpu("tidemark"), lambda: cpu("flink"))
    return [
        at_least("F3 rows per CPU second, log + keyed function vs Flink's KeyedProcessFunction", burnt.inverse(), 1.0)
    ]

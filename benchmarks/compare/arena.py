"""Where contenders meet: each as a whole process on the same files, its sums checked before its time counts."""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.compare.data import Expected, Shape, generate
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import PROJECT, console

_CHECKED = ("rows", "damaged", "valid", "sum")


class WrongSums(Exception):
    """A contender has other sums than the generated data, so its time means nothing."""


@dataclass(frozen=True)
class Ratio:
    """The outcome of one side-by-side measure, pair by pair."""

    ours: list[float]
    theirs: list[float]

    @property
    def pairs(self) -> list[float]:
        """Ours over theirs, of each pair."""
        return [our / their for our, their in zip(self.ours, self.theirs, strict=True)]

    @property
    def median(self) -> float:
        """The median of the pairs."""
        return statistics.median(self.pairs)

    def inverse(self) -> Ratio:
        """Theirs over ours: of times, how much faster."""
        return Ratio(self.theirs, self.ours)

    def __str__(self) -> str:
        return f"{self.median:.2f} x ({min(self.pairs):.2f} to {max(self.pairs):.2f})"


@dataclass
class Arena:
    """Runs contenders, one at a time: `data` keeps generated files, `work` what the newest one wrote.

    `flink` is a Python that has PyFlink. `runs` keeps every measure, by contender and name of the shape.
    """

    data: Path
    work: Path
    flink: Path | None = None
    runs: dict[tuple[str, str], list[Measured]] = field(default_factory=dict)

    def run(self, contender: str, shape: Shape, files_per_batch: int = 5, project: Path = PROJECT) -> Measured:
        """One run on the files of `shape`; `project` may be the checkout of another version.

        Raises:
            WrongSums: its sums are not those of the generated data.
            RuntimeError: it failed.
        """
        source, expected = generate(self.data, shape)
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        measured = measure(
            [*self._command(contender), str(source), str(self.work), str(files_per_batch)],
            {"OMP_NUM_THREADS": "2"},
            project,
        )
        check(contender, measured, expected)
        name = contender if project == PROJECT else f"{contender} of {project.name}"
        self.runs.setdefault((name, shape.name), []).append(measured)
        console.print(
            f"  {name:9} {shape.rows:>12,} rows  {measured.wall:7.1f} s wall  {measured.cpu:7.1f} s CPU  "
            f"{measured.peak / 2**20:7,.0f} MB",
            highlight=False,
        )
        return measured

    def _command(self, contender: str) -> list[str]:
        if contender == "flink":
            assert self.flink is not None
            return [str(self.flink), str(PROJECT / "benchmarks/compare/flink_job.py")]
        if contender == "duckdb":
            return [sys.executable, str(PROJECT / "benchmarks/compare/duckdb_job.py")]
        return [sys.executable, "-m", "benchmarks.compare.contenders", contender]


def side_by_side(times: int, ours: Callable[[], float], theirs: Callable[[], float]) -> Ratio:
    """Both `times` times, in turn, so that a machine that slows down slows both."""
    pairs = [(ours(), theirs()) for _ in range(times)]
    return Ratio([our for our, _ in pairs], [their for _, their in pairs])


def medians(runs: Mapping[tuple[str, str], Sequence[Measured]]) -> dict[tuple[str, str], Measured]:
    """The run with the median wall time, of each contender and shape."""
    return {key: sorted(of_key, key=lambda run: run.wall)[len(of_key) // 2] for key, of_key in runs.items()}


def check(contender: str, measured: Measured, expected: Expected) -> None:
    """Compare the sums of a contender with those of what was generated.

    Raises:
        WrongSums: they differ.
    """
    result = measured.result
    wrong = {name: result[name] for name in _CHECKED if name in result and result[name] != getattr(expected, name)}
    # A pair of row and window that is neither counted nor late was lost.
    pairs = expected.valid * result.get("windows_of_a_row", 1)
    if "counted" in result and result["counted"] + result["late"] != pairs:
        wrong["counted + late"] = result["counted"] + result["late"]
    if wrong:
        raise WrongSums(f"{contender} has {wrong}, but {expected} was generated")

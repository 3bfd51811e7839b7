"""How long each file of tests takes: workers begin with what takes longest, so that they end together.

`pytest -m 'not long' --record-durations` writes `tests/durations.json` anew, from all the files that it ran. This
module is a pytest plugin for that.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path, PurePosixPath
from statistics import median

import pytest

RECORDED = Path(__file__).parents[1] / "durations.json"
"""Seconds by file without its `long` tests, fixtures included, of two workers on a machine with two cores."""

TIME = 3.0
"""Seconds that a file may take in `make test`, on average of many runs, so that all files take minutes."""
LEAST = 0.15
"""The least share of runs in which a file has its turn."""

_seconds: dict[str, float] = defaultdict(float)


@cache
def recorded() -> dict[str, float]:
    """The seconds that each file took when they were recorded."""
    durations: dict[str, float] = json.loads(RECORDED.read_text())
    return durations


@cache
def expected(file: str) -> float:
    """The seconds that a file will take: those recorded or, for a new one, the median of the nearest folder with any.

    `file`: its path below `tests`.
    """
    if file in recorded():
        return recorded()[file]
    for folder in PurePosixPath(file).parents:
        siblings = [taken for other, taken in recorded().items() if folder in PurePosixPath(other).parents]
        if siblings:
            return median(siblings)
    return 0.0


def share(file: str) -> float:
    """The share of runs of `make test` in which there is time for the slow tests of a file."""
    return max(LEAST, min(1.0, TIME / max(expected(file), TIME)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # What `make test` leaves out has no part in the time of a file there.
    if "long" not in report.keywords:
        _seconds[report.nodeid.partition("::")[0].removeprefix("tests/")] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    # Workers tell the process that has started them of each test.
    if session.config.getoption("--record-durations") and not hasattr(session.config, "workerinput"):
        durations = {**recorded(), **{file: round(seconds, 1) for file, seconds in _seconds.items()}}
        there = {file: seconds for file, seconds in durations.items() if (RECORDED.parent / file).is_file()}
        lines = json.dumps(dict(sorted(there.items(), key=lambda entry: (-entry[1], entry[0]))), indent=1)
        RECORDED.write_text(f"{lines}\n")

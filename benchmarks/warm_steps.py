"""Steps of an operator in one warm process: batches are landed, followed and published; and what that costs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from benchmarks.compare.contenders import session
from benchmarks.processes import cpu_seconds
from benchmarks.readings import land
from streaming import Lake
from streaming.base import utc_now
from streaming.changes import publish
from streaming.operators import OperatorRuntime

_FIRST = datetime(2026, 1, 5, tzinfo=UTC)


class Cost(NamedTuple):
    """CPU seconds of the process and all that it has started, and the bytes of the data files that were written."""

    cpu: float
    written: int


def cost_of(work: Callable[[], object], folder: Path) -> Cost:
    """The cost of the work, which writes its files below `folder`."""
    before, began = _files(folder), cpu_seconds()
    work()
    cpu = cpu_seconds() - began
    return Cost(cpu, sum(size for path, size in _files(folder).items() if path not in before))


def land_day(landing: Path, number: int, rows: Iterable[Mapping[str, Any]], drawn: Random) -> None:
    """Land a file of rows, each at a random time `at` of the day with this number."""
    landing.mkdir(parents=True, exist_ok=True)
    begins = _FIRST + timedelta(days=number)

    def line(row: Mapping[str, Any]) -> str:
        at = begins + timedelta(seconds=drawn.randrange(86_400))
        return f"{json.dumps({**row, 'at': at.isoformat()})}\n"

    land(landing, f"{number:05}", "".join(map(line, rows)))


def follow(lake: Lake, runtime: OperatorRuntime) -> None:
    """Let an operator take its steps, and publish what is current of it."""
    for step in runtime.steps(session(), utc_now):
        step.run()
    publish(session(), lake, runtime.operator)


def _files(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in folder.rglob("*.parquet") if "_delta_log" not in path.parts}

"""The cost of publishing what is current: `python -m benchmarks.published`, in some three minutes.

One warm process follows batches of results that are all new, and then corrects a day of them time and again. Each time
the CPU of a step, or of the correction, is set against that of the look and the table that follow it. The CPU is that
of the process and all that it has started.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.contenders import session
from benchmarks.compare.declared import declared
from benchmarks.demands import Demand, begin, conclude, console
from benchmarks.processes import cpu_seconds
from streaming import Lake, drain
from streaming.base import utc_now
from streaming.changes import publish
from streaming.declare import Pipeline
from streaming.operators import runtime_of
from streaming.service.observer import Observer
from streaming.service.run import Run

_FIRST = datetime(2026, 1, 5, tzinfo=UTC)
_SENSORS = 500


def main() -> None:
    """Measure; exit 1 where publishing costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=12)
    arguments, folder = begin(parser, "bench")
    lake, landing = Lake(str(folder / "lake")), folder / "landing"
    pipeline, drawn = declared(str(landing), 1), Random(0)
    steps: list[tuple[float, float]] = []
    for minute in range(arguments.times + 1):
        _land(landing, minute, drawn, late=0)
        _ingest(lake, pipeline)
        steps.append(_costs(lake, pipeline, partial(_step, lake, pipeline)))
    corrections: list[tuple[float, float]] = []
    for minute in range(arguments.times + 1, arguments.times + 2 + arguments.times // 2):
        _land(landing, minute, drawn, late=5)
        drain(session(), lake, pipeline)
        corrections.append(_costs(lake, pipeline, partial(_correct, lake, pipeline)))
    conclude(
        folder / "published.md",
        [
            _demand("a step", steps[1:], 1.1),
            _demand("a correction", corrections[1:], 1.3),
        ],
    )


def _land(landing: Path, minute: int, drawn: Random, *, late: int) -> None:
    """A file of a reading of each sensor in a minute, and of some in the first one."""
    landing.mkdir(parents=True, exist_ok=True)
    times = [(f"s{number}", minute) for number in range(_SENSORS)] + [(f"s{number}", 0) for number in range(late)]
    lines = [
        json.dumps({"id": id_, "at": (_FIRST + timedelta(minutes=at)).isoformat(), "value": drawn.randrange(1000)})
        for id_, at in times
    ]
    (landing / f"{minute:05}.json").write_text("\n".join(lines) + "\n")


def _ingest(lake: Lake, pipeline: Pipeline) -> None:
    for query in Run(session(), lake, pipeline, Observer(utc_now)).start_ingest(availableNow=True).values():
        query.awaitTermination()


def _step(lake: Lake, pipeline: Pipeline) -> None:
    for step in runtime_of(pipeline.operators[0], lake).steps(session(), utc_now):
        step.run()


def _correct(lake: Lake, pipeline: Pipeline) -> None:
    (operator,) = pipeline.operators
    runtime = runtime_of(operator, lake)
    assert runtime.correct(session(), [each.day for each in runtime.plan(session())], utc_now)


def _costs(lake: Lake, pipeline: Pipeline, work: Callable[[], None]) -> tuple[float, float]:
    """The CPU seconds of the work alone, and of the work and what is published of it."""
    began = cpu_seconds()
    work()
    worked = cpu_seconds()
    publish(session(), lake, pipeline.operators[0])
    return worked - began, cpu_seconds() - began


def _demand(what: str, costs: list[tuple[float, float]], limit: float) -> Demand:
    alone, both = ([each[place] for each in costs] for place in (0, 1))
    console.print(f"{what}: {statistics.median(alone):.2f} s of CPU alone, {statistics.median(both):.2f} s published")
    return at_most(f"CPU of {what} with what is published of it vs without", Ratio(both, alone), limit)


if __name__ == "__main__":
    main()

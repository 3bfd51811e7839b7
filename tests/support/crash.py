"""A scenario that is killed at a named point: real processes, real SIGKILL, no hooks in the code under test.

`python -m tests.support.crash <lake> <point>` runs one stage of the scenario and dies in it.
"""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
    correct,
    drain,
    plan,
    start_session,
)
from streaming.operations.repair import repair
from tests.support.feeds import Payload, land
from tests.support.instants import NOW, at
from tests.support.jvm import SHORT_LIVED

_ROOT = Path(__file__).parents[2]
_ALIVE_AT_MOST_SECONDS = 180

_SENSORS = Stream(
    name="sensors",
    source=Files("landing/sensors"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("value_present", "value is not null"),),
)
BY_ID = Windowed(
    "by_id",
    _SENSORS,
    Tumbling("10 seconds"),
    {"readings": agg.count(), "sum_value": agg.sum("value"), "mean_value": agg.mean("value")},
    by=("id",),
)
PIPELINE = Pipeline(_SENSORS, (BY_ID,))
STAGES = ("morning", "evening", "repair", "correction", "report")
# Without the rule the row without a value is valid: it can be repaired.
_LAX = Pipeline(replace(_SENSORS, rules=()), (replace(BY_ID, of=replace(_SENSORS, rules=())),))
REPORT, SECOND_SECTION = "readings_per_id", "readings_in_all"
TORN = "between two sections of the next report"


def _reading(id_: str | None, seconds: float, value: int | None) -> Payload:
    return {"id": id_, "at": at(seconds).isoformat(), "value": value}


def _unremarkable(seconds: float) -> tuple[Payload, ...]:
    """Valid rows in number, so that the few broken ones stay below the share that closes the gate."""
    return tuple(_reading("c", seconds, 1) for _ in range(50))


# T0 is midnight, so the late pairs are of two days. The comment is the watermark after the batch.
_MORNING: tuple[tuple[Payload, ...], ...] = (
    (_reading("a", -12, 1), _reading("b", -3, 2), "not JSON", _reading("a", 2, 3), *_unremarkable(2)),  # -3
    (_reading("a", 14, 4), _reading("b", 11, 5), _reading("a", -11, 60), *_unremarkable(14)),  # 9; the last one is late
    # 16; 80 is late
    (_reading("a", 21, 6), _reading("b", 3, 7), _reading("b", -5, 80), _reading("a", 9e7, 9), *_unremarkable(21)),
)
_EVENING: tuple[tuple[Payload, ...], ...] = (
    (_reading("a", 5, 100), _reading("b", 33, 11), _reading("b", 34, None)),  # 28; 100 is late, of the second day
    (_reading("a", 35, 12), _reading(None, 36, 13)),  # 31
)


def run_scenario(spark: SparkSession, lake: Lake, now: datetime, stages: Sequence[str] = STAGES) -> None:
    """Drain the morning's files; drain the evening's to the end of input; repair; correct; report.

    Each may be run again.
    """
    if "morning" in stages:
        _land(lake, _MORNING, 0)
        drain(spark, lake, PIPELINE, now=lambda: now)
    if "evening" in stages:
        _land(lake, _EVENING, len(_MORNING))
        drain(spark, lake, PIPELINE, end_of_input=True, now=lambda: now)
    if "repair" in stages:
        repair(spark, lake, _LAX, now=lambda: now)
    if "correction" in stages:
        days = [entry.day for entry in plan(spark, lake, BY_ID)]
        if days:
            correct(spark, lake, BY_ID, days, now=lambda: now)
    if "report" in stages:
        # Great Expectations takes seconds to import, which the other stages need not pay.
        from platform_assets.reports.publish import judge_and_publish

        judge_and_publish(spark, lake, _report(), "run", now=lambda: now)


def _report() -> Any:
    from platform_assets.reports.report import Report, Section
    from quality import Suite, unique

    return Report(
        PIPELINE,
        "Readings per id.",
        (
            Section(
                REPORT,
                "Readings per id, first and current.",
                lambda sources: (
                    sources.current(BY_ID).groupBy("id").sum("readings").toDF("id", "readings").orderBy("id")
                ),
                lambda sources: Suite((unique("unique_key", ("id",)),)),
            ),
            Section(
                SECOND_SECTION,
                "Readings of all ids.",
                lambda sources: sources.current(BY_ID).groupBy().sum("readings").toDF("readings"),
                lambda sources: Suite((unique("unique_key", ("readings",)),)),
            ),
        ),
    )


def _land(lake: Lake, batches: tuple[tuple[Payload, ...], ...], first: int) -> None:
    folder = Path(_SENSORS.source.location(lake))
    for number, payloads in enumerate(batches, start=first):
        if not (folder / f"{number:04}.json").exists():
            land(folder, payloads, name=f"{number:04}.json")


@dataclass(frozen=True)
class Point:
    """Where to die: in a stage, before or after the `nth` call there of a function, of those that concern `table`.

    `owner` names the module or class that holds the function, as `module:Class`.
    `alone`: only the Python process dies, and its JVM notices; otherwise both die at once, as in a power cut.
    """

    stage: str
    owner: str
    function: str
    nth: int
    table: str = ""
    after: bool = False
    alone: bool = False


_LOG, _VIEW, _CORRECTIONS = "/sensors/log", "/sensors/by_id", "/sensors/by_id_corrections"
_COMMIT = ("deltalake:DeltaTable", "create_write_transaction")
_PUBLISH = "platform_assets.reports.publish"

# In the order in which one lake meets them: each process goes on where the one before it died, and `nth` counts its own
# calls alone.
POINTS: dict[str, Point] = {
    "log created, its first batch not committed": Point("morning", *_COMMIT, 1, _LOG),
    "before the log commit": Point("morning", *_COMMIT, 2, _LOG),
    "after the log commit, before the checkpoint's": Point("morning", *_COMMIT, 1, _LOG, after=True),
    "after the last batch, before its heartbeat": Point("morning", *_COMMIT, 2, _LOG),
    "before the view's commit": Point("morning", *_COMMIT, 2, _VIEW),
    "after the view's commit, before the checkpoint's": Point("morning", *_COMMIT, 1, _VIEW, after=True),
    "after a log commit, and its JVM lives on for a moment": Point(
        "evening", "streaming.log.ingest:Ingest", "__call__", 1, after=True, alone=True
    ),
    "after the heartbeat of the end of input": Point("evening", *_COMMIT, 3, _LOG, after=True),
    "before the repair's commit": Point("repair", *_COMMIT, 1, _LOG),
    "after the repair's commit": Point("repair", *_COMMIT, 1, _LOG, after=True),
    "after the first of two corrected days": Point("correction", *_COMMIT, 1, _CORRECTIONS, after=True),
    "correction's files written, before its commit": Point("correction", *_COMMIT, 1, _CORRECTIONS),
    "between gate and report": Point("report", _PUBLISH, "open_gate", 1, after=True),
    "report published, its CSV not written": Point("report", _PUBLISH, "put", 1),
    TORN: Point("report", _PUBLISH, "write_rows", 1, after=True),
}


def crash(root: Path, point: str) -> subprocess.CompletedProcess[str]:
    """Run a stage in a process of its own that dies at `point`; back when nothing of that process is left alive."""
    scratch = root / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(_ROOT),
        "TIDEMARK_MASTER": "local[2]",
        "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_DIRS": str(scratch),
        "JAVA_TOOL_OPTIONS": f"{SHORT_LIVED} -Djava.io.tmpdir={scratch}",
    }
    # Waits for the end of the output, which the JVM holds open as well.
    return subprocess.run(
        [sys.executable, "-m", "tests.support.crash", str(root / "lake"), point],
        cwd=scratch,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        timeout=_ALIVE_AT_MOST_SECONDS,
        check=False,
    )


def _arm(point: Point) -> None:
    owner = resolve_name(point.owner)
    original: Callable[..., Any] = getattr(owner, point.function)
    calls = 0

    def die() -> None:
        if point.alone:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os.killpg(0, signal.SIGKILL)

    @functools.wraps(original)
    def armed(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        concerned = any(_location(argument).endswith(point.table) for argument in args)
        calls += concerned
        if concerned and calls == point.nth and not point.after:
            die()
        result = original(*args, **kwargs)
        if concerned and calls == point.nth:
            die()
        return result

    setattr(owner, point.function, armed)


def _location(argument: Any) -> str:
    return argument.table_uri.rstrip("/") if isinstance(argument, DeltaTable) else str(argument)


def main() -> None:
    """Run the stage of the point and die."""
    root, point = sys.argv[1:]
    spark = start_session()
    _arm(POINTS[point])
    run_scenario(spark, Lake(root), NOW, (POINTS[point].stage,))


if __name__ == "__main__":
    main()

"""A scenario that ends at a named point, without hooks in the code under test.

Where a stream runs, a process dies by a real SIGKILL: `python -m tests.support.crash <lake> <point>` runs one stage of
the scenario and dies in it. Elsewhere one thread writes, and the lake as it lies at that instant is all that a kill
would leave: the stage ends in the process of the test, and the lake is put back as it lay then. Of the points that lie
between two commits of a step, one is reached by such a kill all the same.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from streaming import Lake, start_session
from tests.support.instants import NOW
from tests.support.lent import borrowed_session, lending
from tests.support.processes import short_lived
from tests.support.scenario import run_scenario

_ROOT = Path(__file__).parents[2]
_ALIVE_AT_MOST_SECONDS = 180

TORN = "between two sections of the next report"


@dataclass(frozen=True)
class Point:
    """Where to end: in a stage, before or after the `nth` call there of a function, of those that concern `table`.

    `owner` names the module or class that holds the function, as `module:Class`.
    `killed`: a process dies there; it must be so where a stream runs.
    `alone`: only the Python process dies, and its JVM notices; otherwise both die at once, as in a power cut.
    """

    stage: str
    owner: str
    function: str
    nth: int
    table: str = ""
    after: bool = False
    killed: bool = False
    alone: bool = False


_LOG, _VIEW, _CORRECTIONS = "/sensors/log", "/sensors/by_id", "/sensors/by_id_corrections"
_SESSIONS, _STATE = "/sensors/visits", "/sensors/visits_state"
_COMMIT = ("deltalake:DeltaTable", "create_write_transaction")
_PUBLISH = "platform_assets.reports.publish"

# In the order in which one lake meets them: each attempt goes on where the one before it ended, and `nth` counts the
# calls of this attempt alone.
POINTS: dict[str, Point] = {
    "log created, its first batch not committed": Point("morning", *_COMMIT, 1, _LOG, killed=True),
    "before the log commit": Point("morning", *_COMMIT, 2, _LOG, killed=True),
    "after the log commit, before the checkpoint's": Point("morning", *_COMMIT, 1, _LOG, after=True, killed=True),
    "after the last batch, before the first step": Point("morning", "streaming.service.run:Run", "step_all", 1),
    "before the view's commit": Point("morning", *_COMMIT, 1, _VIEW),
    "after the view's commit": Point("morning", *_COMMIT, 1, _VIEW, after=True),
    "after the sessions' commit, before that of their state": Point(
        "morning", *_COMMIT, 1, _SESSIONS, after=True, killed=True
    ),
    "after a log commit, and its JVM lives on for a moment": Point(
        "evening", "streaming.log.ingest:Ingest", "__call__", 1, after=True, killed=True, alone=True
    ),
    "after the heartbeat of the end of input": Point("evening", *_COMMIT, 2, _LOG, after=True),
    "before the commit of the sessions' state": Point("evening", *_COMMIT, 1, _STATE),
    "after the state was made up for": Point("evening", *_COMMIT, 1, _STATE, after=True),
    "before the repair's commit": Point("repair", *_COMMIT, 1, _LOG),
    "after the repair's commit": Point("repair", *_COMMIT, 1, _LOG, after=True),
    "after the first of two corrected days": Point("correction", *_COMMIT, 1, _CORRECTIONS, after=True),
    "correction's files written, before its commit": Point("correction", *_COMMIT, 1, _CORRECTIONS),
    "between gate and report": Point("report", _PUBLISH, "open_gate", 1, after=True),
    "report published, its CSV not written": Point("report", _PUBLISH, "put", 1),
    TORN: Point("report", _PUBLISH, "write_rows", 1, after=True),
}


def crash(
    root: Path,
    point: str,
    module: str = __name__,
    lent: SparkSession | None = None,
    lake: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a stage in a process of its own that dies at `point`; back when nothing of that process is left alive.

    `module` is run with the lake, by default the one in `root`, and the point. It may borrow the session that is
    `lent`, whose JVM lives on.
    """
    scratch = root / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(_ROOT),
        "TIDEMARK_MASTER": "local[2]",
        "TIDEMARK_SPARK_DRIVER_MEMORY": "1g",
        "SPARK_LOCAL_DIRS": str(scratch),
        **short_lived(f"-Djava.io.tmpdir={scratch}"),
        **({} if lent is None else lending(lent)),
    }
    # Waits for the end of the output, which the JVM holds open as well.
    return subprocess.run(
        [sys.executable, "-m", module, lake or str(root / "lake"), point],
        cwd=scratch,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        timeout=_ALIVE_AT_MOST_SECONDS,
        check=False,
    )


class _Ended(BaseException):
    """The stage ends here; nothing that catches exceptions goes on."""


def end(spark: SparkSession, lake: Lake, name: str) -> None:
    """Run a stage in this process up to the point; back when the lake is as it was at that instant."""
    point, aside = POINTS[name], Path(f"{lake.root}-aside")

    def put_aside_and_end() -> None:
        assert not spark.streams.active, (
            f"{name}: a stream writes in several threads and processes, so that only a kill ends them at once"
        )
        shutil.copytree(lake.root, aside)
        raise _Ended

    try:
        with armed(point, put_aside_and_end):
            run_scenario(spark, lake, NOW, (point.stage,))
    except _Ended:
        # What was tidied up on the way out would not have been by a process that is dead.
        shutil.rmtree(lake.root)
        aside.rename(lake.root)
    else:
        raise AssertionError(f"{name}: the stage came to its end")


@contextmanager
def armed(point: Point, die: Callable[[], None]) -> Iterator[None]:
    """While the body runs, whoever reaches the point dies there; or something else does, and `die` returns."""
    owner = resolve_name(point.owner)
    original: Callable[..., Any] = getattr(owner, point.function)
    calls = 0

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        concerned = any(_location(argument).endswith(point.table) for argument in args)
        calls += concerned
        reached = concerned and calls == point.nth
        if reached and not point.after:
            die()
        result = original(*args, **kwargs)
        if reached and point.after:
            die()
        return result

    setattr(owner, point.function, call)
    try:
        yield
    finally:
        setattr(owner, point.function, original)


def die_at(points: Mapping[str, Point], act: Callable[[SparkSession, Lake], object]) -> None:
    """Act with a borrowed session on the lake that the command line names, and die at its point."""
    root, name = sys.argv[1:]
    with armed(points[name], lambda: os.killpg(0, signal.SIGKILL)):
        act(borrowed_session(), Lake(root))


def _location(argument: Any) -> str:
    return argument.table_uri.rstrip("/") if isinstance(argument, DeltaTable) else str(argument)


def main() -> None:
    """Run the stage of the point and die."""
    root, name = sys.argv[1:]
    point = POINTS[name]

    def die() -> None:
        if point.alone:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            os.killpg(0, signal.SIGKILL)

    spark = start_session()
    with armed(point, die):
        run_scenario(spark, Lake(root), NOW, (point.stage,))


if __name__ == "__main__":
    main()

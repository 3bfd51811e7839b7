"""The bars: each a ratio of whole processes side by side, with the limit it is held against."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.compare.arena import Arena, Ratio, WrongSums, side_by_side
from benchmarks.compare.data import TINY, Shape
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import Demand

_A_BATCH = 1_000
_WARM_AFTER = 20
_GIGABYTE = 1e9


def at_least(what: str, ratio: Ratio, limit: float) -> Demand:
    """The demand that a ratio is large enough."""
    return f"{what}: at least {limit:g} x", str(ratio), ratio.median >= limit


def at_most(what: str, ratio: Ratio, limit: float) -> Demand:
    """The demand that a ratio is small enough."""
    return f"{what}: at most {limit:g} x", str(ratio), ratio.median <= limit


def checked(bar: Callable[[], list[Demand]]) -> list[Demand]:
    """The bar's demands, or one that does not hold where a contender failed or has wrong sums."""
    try:
        return bar()
    except (WrongSums, RuntimeError) as failed:
        return [("every contender ends, with the right sums", str(failed), False)]


def ingest(arena: Arena, rows: int, times: int) -> list[Demand]:
    """P1: what a row more costs in CPU, to the event log and to plain Parquet."""
    small, large = Shape(rows), Shape(rows * 3)

    def marginal(contender: str) -> float:
        return arena.run(contender, large).cpu - arena.run(contender, small).cpu

    ratio = side_by_side(times, lambda: marginal("plain"), lambda: marginal("log"))
    return [at_least("P1 rows per CPU second, event log vs plain Parquet", ratio, 1.0)]


def whole(arena: Arena, rows: int, times: int) -> list[Demand]:
    """P2: all that Tidemark publishes against three queries written by hand."""
    wall, cpu = _both(arena, "usual", Shape(rows), times)
    return [
        at_least("P2 wall time, three queries by hand vs log + first results", wall.inverse(), 4.0),
        at_most("P2 CPU, log + first results vs three queries by hand", cpu, 0.6),
    ]


def flink(arena: Arena, rows: int, times: int) -> list[Demand]:
    """P3: the same against Flink."""
    wall, cpu = _both(arena, "flink", Shape(rows), times)
    return [
        at_least("P3 wall time, Flink vs log + first results", wall.inverse(), 1.5),
        at_most("P3 CPU, log + first results vs Flink", cpu, 1 / 1.5),
    ]


def _both(arena: Arena, other: str, shape: Shape, times: int) -> tuple[Ratio, Ratio]:
    ours: list[Measured] = []
    theirs: list[Measured] = []

    def run(contender: str, kept: list[Measured]) -> float:
        kept.append(arena.run(contender, shape))
        return kept[-1].wall

    wall = side_by_side(times, lambda: run("tidemark", ours), lambda: run(other, theirs))
    return wall, Ratio([each.cpu for each in ours], [each.cpu for each in theirs])


def small_batches(arena: Arena, batches: int, times: int) -> list[Demand]:
    """P4: a batch of a thousand rows, warm."""
    shape = Shape(batches * _A_BATCH, a_file=_A_BATCH)

    def median(contender: str) -> float:
        return statistics.median(arena.run(contender, shape, 1).result["took"][_WARM_AFTER:])

    ratio = side_by_side(times, lambda: median("log"), lambda: median("plain"))
    return [at_most("P4 median batch of 1,000 rows, event log vs plain Parquet", ratio, 1.6)]


def many_commits(arena: Arena, batches: int) -> list[Demand]:
    """P8: whether a batch takes longer the more there were before it."""
    took = arena.run("log", Shape(batches * _A_BATCH, a_file=_A_BATCH), 1).result["took"]
    ratio = Ratio([statistics.median(took[-100:])], [statistics.median(took[100:200])])
    return [at_most(f"P8 batch time, last 100 of {batches:,} commits vs batches 100 to 200", ratio, 1.2)]


def much_data(arena: Arena, rows: int) -> list[Demand]:
    """P9 and P10: memory at ten times the data, and speed at four times."""
    once, four, ten = (arena.run("tidemark", Shape(rows * factor)) for factor in (1, 4, 10))
    memory = Ratio([ten.peak], [once.peak])
    speed = Ratio([rows * 4 / four.result["seconds"]], [rows / once.result["seconds"]])
    return [
        at_most("P9 peak memory at 10 times the data", memory, 1.15),
        ("P9 peak memory: at most 3.5 GB", f"{ten.peak / _GIGABYTE:.2f} GB", ten.peak <= 3.5 * _GIGABYTE),
        at_least("P10 rows a second at 4 times the data", speed, 0.95),
    ]


def start(arena: Arena, times: int) -> list[Demand]:
    """P11: from the start of the process to the first commit."""

    def seconds(contender: str) -> float:
        return float(arena.run(contender, TINY, 1).result["seconds"])

    ratio = side_by_side(times, lambda: seconds("first"), lambda: seconds("bare"))
    return [at_most("P11 start of the process to its first commit vs a bare session that writes a row", ratio, 1.3)]


def corrections(data: Path, work: Path) -> list[Demand]:
    """P6 and P7: a day's correction in a log that grows, and more days of it."""
    result = measure(
        [sys.executable, "-m", "benchmarks.compare.corrections_job", str(data), str(work / "corrections")]
    ).result
    once, _, most = result["by_log"]
    one, eight = result["by_days"]
    read, of = result["rows_read"], result["rows_of"]
    return [
        at_most("P6 correction of a day in a log 16 times as large", Ratio(most, once), 1.3),
        at_most("P7 correction of 8 days vs of one", Ratio(eight, one), 8),
        (
            "P7 rows read: at most those of the touched days",
            f"{read[0]:,} of {of[0]:,} and {read[1]:,} of {of[1]:,}",
            all(rows <= most for rows, most in zip(read, of, strict=True)),
        ),
    ]

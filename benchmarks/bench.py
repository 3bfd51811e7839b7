"""Tidemark beside what people use instead: `make bench` in ten minutes, `make bench-full` with every bar.

The record goes to ./bench as `bench.md`, `bench.json` and `bench.png`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks.compare import bars, before, join_bars, keyed_bars, live_operators
from benchmarks.compare.arena import Arena
from benchmarks.compare.data import Shape
from benchmarks.compare.growth import growth
from benchmarks.compare.live import latency
from benchmarks.compare.picture import contenders_table, draw_contenders
from benchmarks.demands import PROJECT, Demand, begin, conclude, console

_DATA = PROJECT / ".tidemark" / "bench"
_SHORT, _FULL = 300_000, 4_000_000


def main() -> None:
    """Measure; exit 1 where a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", type=Path, metavar="PYTHON", help="every bar; takes hours, and a Python with PyFlink")
    parser.add_argument("--before", type=Path, metavar="CHECKOUT", help="another version, to compare the views with")
    parser.add_argument("--only", nargs="*", default=[], metavar="BAR", help="the names of the bars, such as ingest")
    parser.add_argument("--rows", type=int, help="instead of those of the short or the full run")
    parser.add_argument("--times", type=int, default=3, help="how often contenders take turns")
    arguments, folder = begin(parser, "bench")
    arena = Arena(_DATA, folder / "work", arguments.full)
    rows, times = arguments.rows or (_FULL if arguments.full else _SHORT), arguments.times

    def ceiling() -> list[Demand]:
        arena.run("duckdb", Shape(rows))
        return []

    def grown() -> list[Demand]:
        (folder / "growth.md").write_text(f"{growth(arena, rows // 2)}\n")
        return []

    measures: dict[str, Callable[[], list[Demand]]] = {
        "start": lambda: bars.start(arena, times),
        "small_batches": lambda: bars.small_batches(arena, 200 if arguments.full else 60, times),
        "ingest": lambda: bars.ingest(arena, rows, times),
        "whole": lambda: bars.whole(arena, rows, times),
        "joins": lambda: join_bars.against_spark(arena, rows // 2, times),
        "join_steps": lambda: join_bars.steps(arena, *((300, 3_000) if arguments.full else (30, 300))),
        "ceiling": ceiling,
    }
    if arguments.full:
        measures |= {
            "flink": lambda: bars.flink(arena, rows, times),
            "outer_joins": lambda: join_bars.outer(arena, rows // 2, times),
            "flink_joins": lambda: join_bars.against_flink(arena, rows // 2, times),
            "keyed_steps": lambda: keyed_bars.steps(arena, times),
            "flink_keyed": lambda: keyed_bars.against_flink(arena, rows // 4, times),
            "live_joins": lambda: live_operators.pairs(arena.work),
            "live_keyed": lambda: live_operators.alerts(arena.work),
            "latency": lambda: latency(arena.work, arguments.full, times),
            "corrections": lambda: bars.corrections(_DATA, arena.work),
            "many_commits": lambda: bars.many_commits(arena, 2_000),
            "much_data": lambda: bars.much_data(arena, rows),
            "growth": grown,
        }
    if arguments.before:
        measures |= {
            "views": lambda: before.views(arena, rows, times, arguments.before.resolve()),
            "kinds": lambda: before.kinds(arena, rows, times, arguments.before.resolve()),
            "answers": lambda: before.answers(arena.work, times, arguments.before.resolve()),
        }
    demands: list[Demand] = []
    shape = Shape(rows).name
    for name, measure in measures.items():
        if not arguments.only or name in arguments.only:
            console.print(f"\n{name}", highlight=False)
            demands += bars.checked(measure)
            # A full run takes hours: what it has measured so far is kept if it is stopped.
            runs = {f"{name} {of}": [asdict(run) for run in of_shape] for (name, of), of_shape in arena.runs.items()}
            (folder / "bench.json").write_text(json.dumps({"demands": demands, "runs": runs}, indent=1))
    draw_contenders(folder / "bench.png", arena.runs, shape, rows)
    conclude(folder / "bench.md", demands, contenders_table(arena.runs, shape, rows))


if __name__ == "__main__":
    main()

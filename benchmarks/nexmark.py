"""Queries of NEXMark beside Flink SQL: `python -m benchmarks.nexmark --flink PYTHON`.

Both take turns, each as a whole process that reads the same events to their end. Tidemark has log, results and each
change of them as tables; Flink writes what changes in its results to files, and keeps no events. What both have found
is compared before their CPU counts. There are two numbers of events: the difference of the CPU, over that of the rows,
is what a row costs without the start of the process.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from functools import partial
from pathlib import Path

from benchmarks.compare.arena import Ratio, WrongSums
from benchmarks.compare.bars import at_least, checked
from benchmarks.compare.measure import Measured, measure
from benchmarks.compare.nexmark_data import QUERIES, Landed, Results, landed, results_of_changes, results_of_table
from benchmarks.compare.nexmark_job import result_table
from benchmarks.demands import Demand, begin, conclude, console

_OURS, _THEIRS = "Tidemark", "Flink SQL"

Runs = dict[tuple[str, int], list[Measured]]
"""Runs by contender and number of rows."""


def main() -> None:
    """Measure; exit 1 where Tidemark takes fewer than half as many rows in a CPU second."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs=2, default=(250_000, 1_000_000), metavar=("FEW", "MANY"))
    parser.add_argument("--batch", type=int, default=50_000, help="events of a batch of Tidemark's")
    parser.add_argument("--times", type=int, default=3, help="how often they take turns")
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=QUERIES)
    parser.add_argument("--flink", type=Path, metavar="PYTHON", required=True, help="a Python with PyFlink")
    arguments, folder = begin(parser, "bench")
    data = {number: landed(folder / "data", number, arguments.batch) for number in arguments.events}
    runs: dict[str, Runs] = {query: {} for query in arguments.queries}
    demands: list[Demand] = []
    for query, of_query in runs.items():
        for number in arguments.events:
            for _ in range(arguments.times):
                turn = partial(_compared, query, data[number], folder / "work", arguments.flink, of_query)
                demands += checked(turn)
        demands += checked(partial(_bar, query, of_query, data[max(data)]))
    conclude(folder / "nexmark.md", demands, _table(runs))


def _compared(query: str, data: Landed, work: Path, flink: Path, runs: Runs) -> list[Demand]:
    """One run of each, kept in `runs`.

    Raises:
        WrongSums: their results differ.
    """
    found: dict[str, Results] = {}
    rows = data.read_by(query)
    for contender in (_OURS, _THEIRS):
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        if contender == _OURS:
            program = [sys.executable, "-m", "benchmarks.compare.nexmark_job", query, str(data.batches), str(work)]
        else:
            program = [str(flink), "-m", "benchmarks.compare.flink_nexmark_job", query, str(data.ordered), str(work)]
        measured = measure(program, {"OMP_NUM_THREADS": "2"})
        if contender == _OURS:
            found[contender] = results_of_table(result_table(str(work), query), query)
        else:
            found[contender] = results_of_changes(work / "results", query)
        runs.setdefault((contender, rows), []).append(measured)
        console.print(
            f"  {query} {contender:9} {rows:>10,} rows  {len(found[contender]):>6,} results  "
            f"{measured.wall:6.1f} s wall  {measured.cpu:6.1f} s CPU  {measured.peak / 2**20:6,.0f} MB",
            highlight=False,
        )
    if found[_OURS] != found[_THEIRS] or not found[_OURS]:
        ours, theirs = (found[name] - found[other] for name, other in ((_OURS, _THEIRS), (_THEIRS, _OURS)))
        raise WrongSums(
            f"{query} of {rows:,} rows differs: {len(ours)} results are Tidemark's alone, {len(theirs)} are Flink's, "
            f"such as {[*ours][:2]} and {[*theirs][:2]}"
        )
    return []


def _bar(query: str, runs: Runs, data: Landed) -> list[Demand]:
    rows = data.read_by(query)
    ours, theirs = ([run.cpu for run in runs[name, rows]] for name in (_OURS, _THEIRS))
    return [at_least(f"NEXMark {query}, rows per CPU second, Tidemark vs Flink SQL", Ratio(theirs, ours), 0.5)]


def _table(runs: dict[str, Runs]) -> str:
    """A Markdown row for each query and contender: medians."""
    lines = [
        "| query | contender | rows | wall, CPU | peak MB | rows per CPU second, whole process | without its start |",
        "|---|---|---|---|---|---|---|",
    ]
    for query, of_query in runs.items():
        for name in (_OURS, _THEIRS):
            sizes = sorted(rows for contender, rows in of_query if contender == name)
            if len(sizes) < 2:
                continue
            few, many = sizes
            cpu = {rows: statistics.median(run.cpu for run in of_query[name, rows]) for rows in sizes}
            wall, peak = (
                statistics.median(getattr(run, what) for run in of_query[name, many]) for what in ("wall", "peak")
            )
            lines.append(
                f"| {query} | {name} | {many:,} | {wall:.1f} s, {cpu[many]:.1f} s | {peak / 2**20:,.0f} | "
                f"{many / cpu[many]:,.0f} | {(many - few) / (cpu[many] - cpu[few]):,.0f} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

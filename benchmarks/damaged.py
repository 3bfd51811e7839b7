"""Ingest of damaged rows by tasks and by Spark alone: `python -m benchmarks.damaged`, in some ten minutes.

A share of the lines is cut off, has a text for a number, or breaks the rule. Both ways ingest the same files in turn in
one warm process; the CPU is that of the process and all that it has started, without the first turn. What both have
counted must be the same.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
from pathlib import Path
from random import Random

from benchmarks.compare.arena import Ratio
from benchmarks.compare.bars import at_most
from benchmarks.compare.contenders import ingest, session
from benchmarks.compare.counts import Result, logged
from benchmarks.compare.data import Expected, Shape, files
from benchmarks.compare.declared import declared
from benchmarks.demands import PROJECT, Demand, begin, conclude, console
from benchmarks.processes import cpu_seconds
from streaming import Lake

_SHARES = (0.0, 0.1, 0.5, 1.0)
_WAYS = ("careful", "fast")


def main() -> None:
    """Measure; exit 1 where tasks cost more than Spark alone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=3)
    arguments, folder = begin(parser, "bench")
    demands: list[Demand] = []
    for share in _SHARES:
        source = _damaged(
            PROJECT / ".tidemark" / "bench" / f"damaged-{share:g}-{arguments.rows}", arguments.rows, share
        )
        cpu: dict[str, list[float]] = {way: [] for way in _WAYS}
        found: dict[str, Result] = {}
        for turn in range(arguments.times + 1):
            for way in _WAYS:
                os.environ["TIDEMARK_INGEST"] = way
                burnt, found[way] = _ingested(source, folder / "work")
                if turn:
                    cpu[way].append(burnt / arguments.rows * 1e6)
        if found["fast"] != found["careful"]:
            raise SystemExit(f"of {share:.0%} damaged rows, tasks counted {found['fast']}, Spark {found['careful']}")
        told = ", ".join(f"{way} {statistics.median(cpu[way]):.1f} µs a row" for way in _WAYS)
        console.print(f"{share:.0%} damaged: {told}", highlight=False)
        demands.append(
            at_most(f"CPU by tasks vs Spark alone, {share:.0%} damaged", Ratio(cpu["fast"], cpu["careful"]), 1)
        )
    conclude(folder / "damaged.md", demands)


def _ingested(source: Path, work: Path) -> tuple[float, Result]:
    """CPU seconds of an ingest of all files, and what the log has then."""
    shutil.rmtree(work, ignore_errors=True)
    lake, pipeline = Lake(str(work)), declared(str(source), 5)
    before = cpu_seconds()
    ingest(session(), lake, pipeline)
    return cpu_seconds() - before, logged(lake, pipeline)


def _damaged(folder: Path, rows: int, share: float) -> Path:
    """The folder of files in which such a share of the lines is damaged, written if it is not there yet."""
    if folder.exists():
        return folder
    folder.mkdir(parents=True)
    drawn = Random(share)
    for number, lines in enumerate(files(Shape(rows, a_file=20_000), Expected())):
        spoilt = (_spoilt(line, drawn) if drawn.random() < share else line for line in lines)
        (folder / f"{number:05}.json").write_text("".join(spoilt))
    return folder


def _spoilt(line: str, drawn: Random) -> str:
    kind = drawn.randrange(3)
    if kind == 0:
        return f"{line[:40]}\n"
    value = line.partition('"value":')[2].partition(",")[0]
    return line.replace(f'"value":{value}', '"value":"much"' if kind == 1 else '"value":-1e9')


if __name__ == "__main__":
    main()

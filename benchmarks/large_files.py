"""Memory of an ingest of one large file: `python -m benchmarks.large_files --gigabytes 10`, in some ten minutes.

Rows come in files of a hundred thousand, then many more in one file, at last with a line of 60 MB, nearly the longest
that `Files` takes by default. The peak is that of the process and all that it has started; what the log has then must
be what was generated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

from benchmarks.compare.arena import Ratio, check
from benchmarks.compare.bars import at_most
from benchmarks.compare.data import BEGIN, Expected, Shape, generate
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import PROJECT, Demand, begin, conclude, console

_LONG_LINE = 60_000_000
_MEGABYTE = 2**20


def main() -> None:
    """Measure; exit 1 where the large file takes a seventh more memory than the small ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=10.0)
    arguments, folder = begin(parser, "bench")
    shape = Shape(4_000_000)
    small, once = generate(PROJECT / ".tidemark" / "bench", shape)
    times = max(1, round(arguments.gigabytes * 1e9 / (shape.rows * shape.width)))
    expected = Expected(once.rows * times, once.damaged * times, once.valid * times, once.sum * times)
    large = folder / "large" / "in"
    large.mkdir(parents=True)
    parts = [part for _ in range(times) for part in sorted(small.iterdir())]
    with (large / "all.json").open("wb") as one_file:
        one_file.writelines(part.read_bytes() for part in parts)
    peaks = {"files of 100,000 rows": _ingested(small, folder / "work", once)}
    peaks[f"one file, {expected.rows:,} rows"] = _ingested(large, folder / "work", expected)
    with (large / "all.json").open("a") as one_file:
        row = {"id": "k0", "at": BEGIN.isoformat(), "value": 0.0, "unit": "C", "site": "s0", "note": "x" * _LONG_LINE}
        one_file.write(f"{json.dumps(row)}\n")
    expected.rows, expected.valid = expected.rows + 1, expected.valid + 1
    peaks["the same with a line of 60 MB"] = _ingested(large, folder / "work", expected)
    shutil.rmtree(folder / "large")
    of_small, *of_large = (float(each.peak) for each in peaks.values())
    lines = [
        f"| {what} | {each.wall:.0f} | {each.cpu:.0f} | {each.peak / _MEGABYTE:,.0f} |" for what, each in peaks.items()
    ]
    table = "\n".join(["| rows in | wall s | CPU s | peak MB |", "|---|---|---|---|", *lines])
    demands: list[Demand] = [
        at_most("peak memory, one large file vs small ones", Ratio(of_large[:1], [of_small]), 1.15)
    ]
    conclude(folder / "large_files.md", demands, table)


def _ingested(source: Path, work: Path, expected: Expected) -> Measured:
    """One ingest into a log of its own."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.compare.contenders", "log", str(source), str(work), "5"]
    measured = measure(command)
    check("log", measured, expected)
    console.print(f"{measured.wall:.0f} s, {measured.peak / _MEGABYTE:,.0f} MB", highlight=False)
    return measured


if __name__ == "__main__":
    main()

"""What a run demanded, what was seen, and whether it holds: printed, written, and told by the exit code."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

Finding = tuple[str, str, bool]
"""The demand, what was seen, and whether it holds."""

PROJECT = Path(__file__).resolve().parent.parent
console = Console(soft_wrap=True)


def begin(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Path]:
    """The arguments, and the folder of the run, emptied; from here on the pipelines are those of the benchmarks."""
    parser.add_argument("--folder", type=Path, default=Path("soak"))
    parser.add_argument("--seed", type=int, default=2013)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["TIDEMARK_PIPELINES"] = "benchmarks.pipelines"
    os.environ["PYTHONPATH"] = str(PROJECT)
    return arguments, folder


def conclude(record: Path, findings: Sequence[Finding]) -> NoReturn:
    """Write the findings to `record` as a table, print them, and exit: with 1 where one does not hold."""
    lines = [f"| {what} | {seen} | {'yes' if held else 'NO'} |" for what, seen, held in findings]
    table = "\n".join(["| demand | seen | holds |", "|---|---|---|", *lines])
    record.write_text(f"{table}\n")
    console.print(table, highlight=False, markup=False)
    console.print(f"\nwrote {record}; the lake is in {record.parent}/lake")
    sys.exit(0 if all(held for _, _, held in findings) else 1)

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


def begin(parser: argparse.ArgumentParser, folder: str = "soak") -> tuple[argparse.Namespace, Path]:
    """The arguments, and the folder of the run, emptied; from here on the pipelines are those of the benchmarks."""
    parser.add_argument("--folder", type=Path, default=Path(folder))
    arguments = parser.parse_args()
    there = arguments.folder.resolve()
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir(parents=True)
    os.environ["TIDEMARK_PIPELINES"] = "benchmarks.pipelines"
    os.environ["PYTHONPATH"] = str(PROJECT)
    return arguments, there


def conclude(record: Path, findings: Sequence[Finding], *tables: str) -> NoReturn:
    """Write the findings and more `tables` to `record`, print them, and exit: with 1 where a demand does not hold."""
    lines = [f"| {what} | {seen} | {'yes' if held else 'NO'} |" for what, seen, held in findings]
    text = "\n\n".join(["\n".join(["| demand | seen | holds |", "|---|---|---|", *lines]), *tables])
    record.write_text(f"{text}\n")
    console.print(text, highlight=False, markup=False)
    console.print(f"\nwrote {record}; what the run left behind lies beside it")
    sys.exit(0 if all(held for _, _, held in findings) else 1)

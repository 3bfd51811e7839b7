"""The demands of a run, what it measured, and whether they hold: printed, written, and the exit code."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from benchmarks.processes import code_of

Demand = tuple[str, str, bool]
"""A demand, what was measured of it, and whether it holds."""

PROJECT = Path(__file__).resolve().parent.parent
console = Console(soft_wrap=True)


def begin(parser: argparse.ArgumentParser, folder: str = "soak") -> tuple[argparse.Namespace, Path]:
    """The arguments, and the folder of the run, emptied; from here on the pipelines are those of the benchmarks."""
    parser.add_argument("--folder", type=Path, default=Path(folder))
    arguments = parser.parse_args()
    run_folder = arguments.folder.resolve()
    shutil.rmtree(run_folder, ignore_errors=True)
    run_folder.mkdir(parents=True)
    os.environ["TIDEMARK_PIPELINES"] = "benchmarks.pipelines"
    os.environ.update(code_of(PROJECT))
    return arguments, run_folder


def conclude(record: Path, demands: Sequence[Demand], *tables: str) -> NoReturn:
    """Write the demands and more `tables` to `record`, print them, and exit: with 1 where a demand does not hold."""
    lines = [f"| {what} | {measured} | {'yes' if holds else 'NO'} |" for what, measured, holds in demands]
    text = "\n\n".join(["\n".join(["| demand | measured | holds |", "|---|---|---|", *lines]), *tables])
    record.write_text(f"{text}\n")
    console.print(text, highlight=False, markup=False)
    console.print(f"\nwrote {record}; what the run left behind lies beside it")
    sys.exit(0 if all(holds for _, _, holds in demands) else 1)

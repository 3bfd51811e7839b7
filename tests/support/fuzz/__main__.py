"""The fuzz: random pipelines with one hostile row each, for a number of cases or of minutes.

`python -m tests.support.fuzz --minutes 60` draws other cases each time; `--case SEED` tries one again.
"""

from __future__ import annotations

import os
import secrets
import sys
import time
from itertools import count
from typing import Annotated

import typer
from rich.console import Console

from streaming import start_session
from tests.support.fuzz.case import Tally, try_case
from tidemark.pytest_plugin import HANDFUL, JVM_OPTIONS

console = Console(soft_wrap=True, highlight=False)


def main(
    cases: Annotated[int, typer.Option(help="How many pipelines, where no time is given.")] = 10,
    minutes: Annotated[float | None, typer.Option(help="For how long.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="From which seed the cases are drawn; another one by default.")
    ] = None,
    case: Annotated[int | None, typer.Option(help="The seed of the one case to try again.")] = None,
) -> None:
    """Try random pipelines with one hostile row each against the same without it."""
    os.environ.setdefault("TIDEMARK_MASTER", "local[2]")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JVM_OPTIONS)
    for name, value in HANDFUL.items():
        os.environ.setdefault(f"TIDEMARK_SPARK_{name}", value)
    spark = start_session()
    # What pauses an operator is expected, and Spark would tell each time at length.
    spark.sparkContext.setLogLevel("OFF")
    first = secrets.randbelow(1_000_000) if seed is None else seed
    tally, began = Tally(), time.monotonic()
    try:
        for number in count():
            tried = case if case is not None else first * 1_000_000 + number
            start = time.monotonic()
            for fault in try_case(spark, tried, tally):
                console.print(str(fault), markup=False)
            now = time.monotonic()
            said = f"{tally.rows} hostile rows, {len(tally.faults)} faults so far"
            console.print(f"{now - began:6.0f} s  case {tried} took {now - start:.1f} s; {said}")
            if case is not None or (number + 1 >= cases if minutes is None else now - began >= 60 * minutes):
                break
    except KeyboardInterrupt:
        console.print("interrupted")
    passed = time.monotonic() - began
    console.print(
        f"seed {first if case is None else case}: {tally.cases} pipelines, {tally.rows} hostile rows in {passed:,.0f} s"
    )
    counts = {"operators": tally.operators, "hostile": tally.hostilities, "outcomes": tally.outcomes}
    for what, counted in counts.items():
        console.print(f"{what}: {', '.join(f'{name} {number}' for name, number in sorted(counted.items()))}")
    console.print(f"faults: {len(tally.faults)}")
    spark.stop()
    sys.exit(1 if tally.faults else 0)


if __name__ == "__main__":
    typer.run(main)

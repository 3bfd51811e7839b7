"""A generated stream that ends by a real SIGKILL: `python -m tests.support.generator_crash <lake> <point>`."""

from __future__ import annotations

import os
import signal
import sys

from docs.examples.generators import mean_of_replayable, replayable
from streaming import Lake, Pipeline, drain, start_session
from tests.support.crash import Point, armed
from tests.support.instants import NOW

PIPELINE = Pipeline(replayable, (mean_of_replayable,))

AT_ROW_400 = "rows 0 to 399 committed, 400 to 599 read"
POINTS: dict[str, Point] = {
    AT_ROW_400: Point("", "deltalake:DeltaTable", "create_write_transaction", 3, "/replayable_readings/log"),
}


def main() -> None:
    """Drain the pipeline and die."""
    root, name = sys.argv[1:]
    spark = start_session()
    with armed(POINTS[name], lambda: os.killpg(0, signal.SIGKILL)):
        drain(spark, Lake(root), PIPELINE, now=lambda: NOW)


if __name__ == "__main__":
    main()

"""Log and keyed function as a program: `python -m benchmarks.compare.keyed_job INPUT WORK FILES_PER_BATCH RESULT`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.compare.declared import declared
from benchmarks.compare.jumps import counted_and_summed, jumps_of
from streaming import Lake, Pipeline, drain
from streaming.spark.session import start_session


def main() -> None:
    """Everything in INPUT: valid and rejected rows to the log, and what is told of them."""
    source, work, files_per_batch, result = sys.argv[1:]
    spark, lake = start_session(), Lake(work)
    stream = declared(source, int(files_per_batch)).stream
    jumps = jumps_of(stream)
    started = time.monotonic()
    drain(spark, lake, Pipeline(stream, (jumps,)))
    took = time.monotonic() - started
    totals = counted_and_summed(spark.read.format("delta").load(lake.table(jumps)))
    Path(result).write_text(json.dumps({"seconds": took, "told": totals}))


if __name__ == "__main__":
    main()

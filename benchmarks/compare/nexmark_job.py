"""A query of NEXMark in Tidemark, as a program: `python -m benchmarks.compare.nexmark_job QUERY INPUT WORK RESULT`.

INPUT has a folder of files for each kind of event, and each file is a batch. WORK becomes the lake.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

from docs.examples import nexmark
from streaming import Files, Lake, Pipeline, Stream, View, Windowed, drain
from streaming.declare import CURRENT, Operator
from streaming.spark.session import start_session


def pipeline_of(query: str, source: str = "landing") -> Pipeline:
    """The query's operators alone, over the files below `source`."""
    auction, bid = (_read_from(source, each) for each in (nexmark.auction, nexmark.bid))
    if query == "q4":
        final = replace(nexmark.q4_final_price, of=(auction, bid))
        return Pipeline(name=query, streams=(auction, bid), operators=(final, replace(nexmark.q4, of=(final,))))
    if query == "q5":
        bids: Windowed = replace(nexmark.q5_bids_of_window, of=bid)
        hot: View = replace(nexmark.q5, of=(bids,))
        return Pipeline(name=query, streams=(bid,), operators=(bids, hot))
    return Pipeline(name=query, streams=(bid,), operators=(replace(nexmark.q7, of=bid),))


def result_table(work: str, query: str) -> str:
    """The table with the current results of a query."""
    result: Operator = pipeline_of(query).operators[-1]
    return Lake(work).table(result, CURRENT)


def _read_from(source: str, stream: Stream) -> Stream:
    return replace(stream, source=Files(f"{source}/{stream.name}", files_per_batch=1))


def main() -> None:
    """Everything in INPUT, to the end of the input."""
    query, source, work, result = sys.argv[1:]
    spark, lake = start_session(), Lake(work)
    started = time.monotonic()
    drain(spark, lake, pipeline_of(query, source), end_of_input=True)
    Path(result).write_text(json.dumps({"seconds": time.monotonic() - started}))


if __name__ == "__main__":
    main()

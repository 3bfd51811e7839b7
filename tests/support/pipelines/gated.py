"""A stream whose view waits at a gate: a reading may name a FIFO, which holds the batch that publishes its window."""

from pathlib import Path

import pandas as pd

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed
from streaming.declare.functions import WindowFunction
from streaming.declare.restarts import NoRestart


def pass_gates(rows: pd.DataFrame) -> pd.DataFrame:
    """Counts the rows, once somebody has opened each of their gates from the other side."""
    for gate in rows["gate"].dropna():
        Path(gate).read_text()
    return pd.DataFrame({"rows": [len(rows)]})


gated = Stream(
    name="gated",
    source=Files("landing/gated"),
    format=Json("id string, at timestamp, gate string"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

counts = Windowed("counts", gated, Tumbling("10 seconds"), by=("id",), function=WindowFunction(pass_gates, "rows long"))

pipeline = Pipeline(gated, (counts,), restart=NoRestart(), stop_within="5 seconds")

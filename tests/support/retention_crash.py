"""Maintenance that ends by a real SIGKILL as it drops days: `python -m tests.support.retention_crash <lake> <point>`.

Two streams that keep two days, and what is computed of one, and of both. The session is lent: dropping days has Spark
read and write files, and commits them in Python.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Lake,
    Pipeline,
    Rule,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.operations.maintenance import maintain
from streaming.operations.retention import Dropped, drop_days
from tests.support.crash import Point, die_at
from tests.support.instants import T0

LATER = T0 + timedelta(days=9)

readings = Stream(
    name="readings",
    source=Files("landing/readings", files_per_batch=1),
    format=Json("id string not null, at timestamp not null, temperature double"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
    rules=(Rule("cold", "temperature < 90"),),
    retention="2 days",
)
calls = Stream(
    name="calls",
    source=Files("landing/calls", files_per_batch=1),
    format=Json("id string not null, called timestamp not null"),
    event_time="called",
    clock=BoundedOutOfOrderness("0 seconds"),
    retention="2 days",
)


def of(readings: Stream) -> Pipeline:
    """The pipeline, with the readings declared in another way."""
    hours = Windowed(
        "hours", readings, Tumbling("1 hour"), {"readings": agg.count(), "greatest": agg.maximum("temperature")}
    )
    near = Joined("near", readings, calls, ("id",), ("0 seconds", "1 hour"))
    return Pipeline(name="house", streams=(readings, calls), operators=(hours, near))


pipeline, tolerant = of(readings), of(replace(readings, rules=()))

_COMMIT = ("deltalake:DeltaTable", "create_write_transaction")
_LOG = "/readings/log"

NOTED = "noted what goes of the first log, nothing taken out"
POINTS: dict[str, Point] = {
    "a place to note what goes, nothing noted": Point(
        "", "streaming.log.batches", "write_deltalake", 1, "/readings/dropped"
    ),
    NOTED: Point("", "streaming.operations.retention", "take_out_days", 1),
    "a repaired row left out of new files, which are not in the log": Point("", *_COMMIT, 1, _LOG),
    "taken out of the first log of two": Point("", *_COMMIT, 1, _LOG, after=True),
    "days are dropped, the first log compacted": Point(
        "", "streaming.operations.maintenance", "_compact", 1, _LOG, after=True
    ),
}


def keep_tidy(spark: SparkSession, lake: Lake) -> list[Dropped]:
    """What `tidemark maintain` does."""
    dropped = drop_days(lambda: spark, lake, pipeline)
    maintain(lake, pipeline, now=lambda: LATER)
    return dropped


if __name__ == "__main__":
    die_at(POINTS, keep_tidy)

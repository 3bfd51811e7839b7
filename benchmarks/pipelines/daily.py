"""The pipeline of the midnight measure: windows of a day whose end is told by the environment."""

import os

from benchmarks.compare.declared import FIELDS, PLAUSIBLE
from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg

MIDNIGHT = "TIDEMARK_BENCH_MIDNIGHT"
"""Seconds since the epoch at which a day is to end, so that nobody has to wait for a real midnight."""
DELAY_SECONDS = 2
_A_DAY = 86_400

daily = Stream(
    name="daily",
    source=Files("landing/daily", files_per_batch=5),
    format=Json(FIELDS),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY_SECONDS} seconds"),
    rules=(Rule("value_plausible", PLAUSIBLE),),
)

per_day = Windowed(
    "daily_per_day",
    daily,
    Tumbling("1 day", offset=f"{int(os.environ.get(MIDNIGHT, '0')) % _A_DAY} seconds"),
    {"readings": agg.count(), "sum_value": agg.sum("value")},
    by=("id",),
)

pipeline = Pipeline(daily, (per_day,), trigger="500 milliseconds")

"""The pipeline of the latency measure: windows of some ten seconds, closed two seconds after they end."""

from benchmarks.compare.declared import FIELDS, PLAUSIBLE
from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg

# Not a whole number of seconds, so that windows end at every phase of Flink's checkpoints.
WINDOW_SECONDS = 9.75
DELAY_SECONDS = 2

live = Stream(
    name="live",
    source=Files("landing/live", files_per_batch=100),
    format=Json(FIELDS),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY_SECONDS} seconds"),
    rules=(Rule("value_plausible", PLAUSIBLE),),
)

per_window = Windowed(
    "live_per_window",
    live,
    Tumbling(f"{WINDOW_SECONDS * 1000:.0f} milliseconds"),
    {"readings": agg.count(), "sum_value": agg.sum("value")},
    by=("id",),
)

# Shorter than any batch, so that the next one begins as soon as the last one has ended.
pipeline = Pipeline(live, (per_window,), trigger="100 milliseconds")

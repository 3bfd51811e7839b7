"""The pipeline of the latency measure: windows of ten seconds, closed two seconds after they end."""

from benchmarks.compare.declared import FIELDS, PLAUSIBLE
from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, count, total

WINDOW_SECONDS = 10
DELAY_SECONDS = 2

live = Stream(
    name="live",
    source=Files("landing/live", files_per_batch=100),
    format=Json(FIELDS),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY_SECONDS} seconds"),
    rules=(Rule("value_plausible", PLAUSIBLE),),
)

per_ten_seconds = Windowed(
    "live_per_ten_seconds",
    live,
    Tumbling(f"{WINDOW_SECONDS} seconds"),
    {"readings": count(), "sum_value": total("value")},
    by=("id",),
)

# As fast as it can.
pipeline = Pipeline(live, (per_ten_seconds,), trigger="100 milliseconds")

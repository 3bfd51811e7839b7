"""The pipeline of the soak: meters, one view corrected by schedule and one by the stream itself."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg
from streaming.declare.restarts import ExponentialBackoff

meters = Stream(
    name="meters",
    description="Readings of twenty meters, some late, some damaged.",
    source=Files("landing/meters", files_per_batch=20),
    format=Json("meter string, at timestamp, value double"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", idle_after="30 seconds"),
    rules=(Rule("value_plausible", "value between 0 and 1000"),),
)

per_ten_seconds = Windowed(
    "per_ten_seconds",
    meters,
    Tumbling("10 seconds"),
    {"readings": agg.count(), "sum_value": agg.sum("value")},
    by=("meter",),
)

per_minute = Windowed(
    "per_minute",
    meters,
    Tumbling("1 minute"),
    {"readings": agg.count(), "mean_value": agg.mean("value")},
    late="update",
    allowed_lateness="1 minute",
)

# A short backoff, because the soak kills the stream often; a stop must end before the soak looks for orphans.
pipeline = Pipeline(
    meters,
    (per_ten_seconds, per_minute),
    restart=ExponentialBackoff(maximum="10 seconds", reset_after="1 minute"),
    stop_within="10 seconds",
)

"""Readings per sensor and ten seconds; what comes up to five seconds late updates its result at once."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

updated_readings = Stream(
    name="updated_readings",
    description="One row per reading of a sensor.",
    source=Files("landing/updated_readings"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)

updated_counts = Windowed(
    name="updated_counts",
    of=updated_readings,
    by=("id",),
    window=Tumbling("10 seconds"),
    aggregates={"readings": agg.count()},
    late="update",
    allowed_lateness="5 seconds",
)

pipeline = Pipeline(stream=updated_readings, views=(updated_counts,))

"""Events at most ten seconds out of order, counted in windows of ten and of thirty seconds.

An event that is late for a short window may be in time for a long one: lateness is a matter of the window.
"""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

events = Stream(
    name="events",
    description="One row per event.",
    source=Files("landing/events"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("10 seconds"),
)

by_10_seconds = Windowed(
    name="by_10_seconds", of=events, window=Tumbling("10 seconds"), aggregates={"events": agg.count()}
)
by_30_seconds = Windowed(
    name="by_30_seconds", of=events, window=Tumbling("30 seconds"), aggregates={"events": agg.count()}
)

pipeline = Pipeline(stream=events, views=(by_10_seconds, by_30_seconds))

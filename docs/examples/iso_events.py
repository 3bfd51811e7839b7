"""Event time extracted from ISO-8601 text; text without an offset names no instant and is rejected."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg

iso_events = Stream(
    name="iso_events",
    description="One row per event.",
    source=Files("landing/iso_events"),
    format=Json("event_timestamp timestamp not null"),
    derived={"epoch_ms": "unix_millis(event_timestamp)"},
    event_time="event_timestamp",
    clock=BoundedOutOfOrderness("0 seconds"),
)

events_by_minute = Windowed(
    name="events_by_minute",
    of=iso_events,
    window=Tumbling("1 minute"),
    aggregates={"events": agg.count()},
)

pipeline = Pipeline(stream=iso_events, views=(events_by_minute,))

"""Records against a declared schema: what does not fit becomes a dead letter with its payload and all reasons."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

records = Stream(
    name="records",
    description="One row per record.",
    source=Files("landing/records"),
    format=Json("id string not null, ts bigint not null"),
    derived={"event_time": epoch_millis("ts")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)

records_by_minute = Windowed(
    name="records_by_minute",
    of=records,
    window=Tumbling("1 minute"),
    aggregates={"records": agg.count()},
)

pipeline = Pipeline(stream=records, views=(records_by_minute,))

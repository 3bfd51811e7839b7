"""Readings per sensor in windows of ten seconds; late ones are counted by a correction."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

readings = Stream(
    name="readings",
    description="One row per reading of a sensor.",
    source=Files("landing/readings"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("5 seconds"),
)

count_by_sensor = Windowed(
    name="count_by_sensor",
    of=readings,
    by=("id",),
    window=Tumbling("10 seconds"),
    aggregates={"readings": agg.count()},
)

count_in_time = Windowed(
    name="count_in_time",
    description="Never corrected: what comes late is left out, yet it can be read and counted.",
    of=readings,
    by=("id",),
    window=Tumbling("10 seconds"),
    aggregates={"readings": agg.count()},
    late="drop",
)

pipeline = Pipeline(stream=readings, views=(count_by_sensor,))

dropping = Pipeline(stream=readings, views=(count_in_time,))

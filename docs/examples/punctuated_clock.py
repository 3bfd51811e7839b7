"""Sensor readings of which only those of one trusted sensor move the watermark."""

from streaming import Files, Json, Pipeline, Punctuated, Stream, Tumbling, Windowed, agg, epoch_millis

punctuated_readings = Stream(
    name="punctuated_readings",
    description="One row per reading of a sensor.",
    source=Files("landing/punctuated_readings"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=Punctuated("id = 's1'", delay="60 seconds"),
)

punctuated_by_minute = Windowed(
    name="punctuated_by_minute",
    of=punctuated_readings,
    by=("id",),
    window=Tumbling("1 minute"),
    aggregates={"readings": agg.count()},
)

pipeline = Pipeline(stream=punctuated_readings, views=(punctuated_by_minute,))

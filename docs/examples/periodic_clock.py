"""Sensor readings up to a minute out of order: every reading moves the watermark."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

periodic_readings = Stream(
    name="periodic_readings",
    description="One row per reading of a sensor.",
    source=Files("landing/periodic_readings"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("60 seconds"),
)

readings_by_minute = Windowed(
    name="readings_by_minute",
    of=periodic_readings,
    by=("id",),
    window=Tumbling("1 minute"),
    aggregates={"readings": agg.count()},
)

pipeline = Pipeline(stream=periodic_readings, views=(readings_by_minute,))

"""Readings per sensor, in ten seconds and in bursts; what comes up to five seconds late updates its result."""

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
)

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

updated_bursts = Windowed(
    name="updated_bursts",
    description="A late row may lengthen a burst, or join two to one: its update stands for both.",
    of=updated_readings,
    by=("id",),
    window=SessionWindow("10 seconds"),
    aggregates={"readings": agg.count()},
    late="update",
    allowed_lateness="5 seconds",
)

pipeline = Pipeline(stream=updated_readings, views=(updated_counts,))

bursts = Pipeline(stream=updated_readings, views=(updated_bursts,))

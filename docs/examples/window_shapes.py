"""One stream of readings in windows of many shapes: with an offset, overlapping, with gaps, of one's own."""

from streaming import (
    BoundedOutOfOrderness,
    Custom,
    Files,
    Json,
    Pipeline,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    agg,
    epoch_millis,
)

shapes = Stream(
    name="shapes",
    description="One row per reading of a sensor.",
    source=Files("landing/shapes"),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)

from_quarter_past = Windowed(
    name="from_quarter_past",
    description="Hours that begin at a quarter past.",
    of=shapes,
    by=("id",),
    window=Tumbling("1 hour", offset="15 minutes"),
    aggregates={"readings": agg.count()},
)

last_hour = Windowed(
    name="last_hour",
    description="The last hour, every quarter of an hour.",
    of=shapes,
    by=("id",),
    window=Sliding("1 hour", slide="15 minutes"),
    aggregates={"mean": agg.mean("temperature")},
)

ten_of_fifteen = Windowed(
    name="ten_of_fifteen",
    description="The first ten of every fifteen seconds; readings of the other five are in no window.",
    of=shapes,
    by=("id",),
    window=Sliding("10 seconds", slide="15 seconds"),
    aggregates={"readings": agg.count()},
)

HALF_MINUTE = """array(struct(
    timestamp_millis(unix_millis(event_time) - pmod(unix_millis(event_time), 30000)),
    timestamp_millis(unix_millis(event_time) - pmod(unix_millis(event_time), 30000) + 30000)))"""
"""The window of 30 seconds that holds an event; rounds down before 1970 as well."""

half_minutes = Windowed(
    name="half_minutes",
    description="Half minutes, by an assigner of one's own.",
    of=shapes,
    by=("id",),
    window=Custom(HALF_MINUTE, within="30 seconds"),
    aggregates={"readings": agg.count()},
)

five_seconds = Windowed(
    name="five_seconds", of=shapes, by=("id",), window=Tumbling("5 seconds"), aggregates={"readings": agg.count()}
)

pipeline = Pipeline(stream=shapes, views=(from_quarter_past, last_hour, ten_of_fifteen, half_minutes, five_seconds))

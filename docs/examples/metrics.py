"""Metric segments of registered types, condensed to one row per type, source and five minutes."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Selected, Stream, Tumbling, Windowed, agg

REGISTERED = ("cpu", "memory")

_is_registered = f"type in ({', '.join(map(repr, REGISTERED))})"

metrics = Stream(
    name="metrics",
    description="One row per segment of a metric.",
    source=Files("landing/metrics"),
    format=Json("type string not null, source string not null, ts timestamp not null, value double not null"),
    event_time="ts",
    clock=BoundedOutOfOrderness("10 seconds"),
)

registered = Selected("registered", of=metrics, where=_is_registered)

by_5_minutes = Windowed(
    name="by_5_minutes",
    of=metrics,
    by=("type", "source"),
    window=Tumbling("5 minutes"),
    where=_is_registered,
    aggregates={"n": agg.count(), "sum": agg.sum("value"), "min": agg.minimum("value"), "max": agg.maximum("value")},
)

pipeline = Pipeline(stream=metrics, views=(by_5_minutes, registered))

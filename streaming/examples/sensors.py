"""Sensor readings in degrees Fahrenheit: converted, averaged per sensor, filtered by a threshold."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg, epoch_millis
from streaming.log import Filter

sensors = Stream(
    name="sensors",
    description="One row per reading of a sensor.",
    source=Files("landing/sensors"),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={
        "event_time": epoch_millis("timestamp"),
        "celsius": "(temperature - 32) * 5 / 9",
    },
    event_time="event_time",
    clock=BoundedOutOfOrderness("5 seconds"),
    # Without this rule, readings without a temperature would be counted in no mean, and nobody would notice.
    rules=(Rule("temperature_present", "temperature is not null"),),
)

mean_by_5_seconds = Windowed(
    name="mean_by_5_seconds",
    of=sensors,
    by=("id",),
    window=Tumbling("5 seconds"),
    aggregates={"mean_celsius": agg.mean("celsius")},
)

mean_by_second = Windowed(
    name="mean_by_second",
    of=sensors,
    by=("id",),
    window=Tumbling("1 second"),
    aggregates={"mean_celsius": agg.mean("celsius")},
)

warm = Filter("warm", of=sensors, where="temperature >= 25.0")

pipeline = Pipeline(stream=sensors, views=(mean_by_5_seconds, mean_by_second))

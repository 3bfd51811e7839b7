"""The temperature around events, per city: a stream that follows a join of two others."""

from docs.examples.city_temperatures import weather_of_events
from streaming import BoundedOutOfOrderness, Json, Pipeline, Stream, Table, Tumbling, Windowed, agg

event_weather = Stream(
    name="event_weather",
    description="One row per event and reading of its city.",
    source=Table(weather_of_events),
    format=Json("city_code string, at timestamp, ts timestamp, temperature double"),
    event_time="ts",
    clock=BoundedOutOfOrderness("1 hour"),
)

# Several events of a city have the same readings.
mean_at_events = Windowed(
    name="mean_at_events",
    of=event_weather,
    by=("city_code",),
    window=Tumbling("1 hour"),
    distinct=("city_code", "ts"),
    aggregates={"temperature": agg.mean("temperature")},
)

pipeline = Pipeline(stream=event_weather, views=(mean_at_events,))

"""Temperatures of those cities only that a first stream names: a websocket pushes what it is asked for."""

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Joined,
    Json,
    Pipeline,
    Receiver,
    Stream,
    Subscriptions,
    Tumbling,
    Websocket,
    Windowed,
    agg,
)

events = Stream(
    name="city_events",
    description="One row per event, in some city.",
    source=Files("landing/city_events"),
    format=Json("city_code string not null, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds"),
)

temperatures = Stream(
    name="temperatures",
    description="One row per reading that the websocket pushed.",
    source=Files("landing/temperatures"),
    format=Json("city_code string not null, ts timestamp not null, temperature double not null"),
    event_time="ts",
    clock=BoundedOutOfOrderness("10 seconds"),
)

# After a lost connection everything is asked for again, and the server may push what it pushed before.
mean_by_city = Windowed(
    name="mean_by_city",
    of=temperatures,
    by=("city_code",),
    window=Tumbling("1 hour"),
    distinct=("city_code", "ts"),
    aggregates={"temperature": agg.mean("temperature")},
)

weather_of_events = Joined(
    name="weather_of_events",
    left=events,
    right=temperatures,
    on=("city_code",),
    between=("-1 hour", "1 hour"),
    select=("city_code", "at", "ts", "temperature"),
    description="Each event with the readings of its city within an hour of it.",
)

temperatures_in = Receiver(
    name="temperatures_in",
    connector=Websocket("ws://127.0.0.1:9181/temperatures"),
    into=temperatures,
    subscriptions=Subscriptions(of=events, column="city_code", message='{"city": {value}}'),
    every="5 seconds",
)

pipeline = Pipeline(
    name="city_temperatures",
    streams=(events, temperatures),
    operators=(mean_by_city, weather_of_events),
    receivers=(temperatures_in,),
)

"""Processing time as an event time: readings in windows of the instant at which they were ingested."""

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    Windowed,
    agg,
)

arrivals = Stream(
    name="arrivals",
    description="One row per reading of a sensor, in degrees Fahrenheit.",
    source=Files("landing/arrivals"),
    format=Json("id string not null, temperature double"),
    derived={"arrived_at": "_ingested_at", "celsius": "(temperature - 32) * 5 / 9"},
    event_time="arrived_at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

mean_by_second = Windowed(
    name="mean_by_second",
    of=arrivals,
    by=("id",),
    window=Tumbling("1 second"),
    aggregates={"mean_celsius": agg.mean("celsius")},
)

per_second = Windowed(
    name="per_second",
    description="Readings of all sensors; a second without any is an outage (see streaming.views.results).",
    of=arrivals,
    window=Tumbling("1 second"),
    aggregates={"readings": agg.count()},
)

dashboard = Windowed(
    name="dashboard",
    description="What a wall shows: each ten seconds, also while they last.",
    of=arrivals,
    by=("id",),
    window=Tumbling("10 seconds"),
    aggregates={"readings": agg.count(), "mean_celsius": agg.mean("celsius")},
    early="each batch",
)

pipeline = Pipeline(stream=arrivals, views=(mean_by_second, per_second, dashboard))


def _readings(name: str, window: Sliding | SessionWindow | Tumbling, *by: str) -> Windowed:
    return Windowed(name=name, of=arrivals, by=by, window=window, aggregates={"readings": agg.count()})


two_seconds = _readings("two_seconds", Sliding("2 seconds", slide="1 second"), "id")
bursts = _readings("bursts", SessionWindow("5 seconds"), "id")
ten_seconds = _readings("ten_seconds", Sliding("10 seconds", slide="5 seconds"), "id")
minutes = _readings("minutes", Tumbling("1 minute"))

further_shapes = Pipeline(stream=arrivals, views=(two_seconds, bursts, ten_seconds, minutes))

"""Traffic at intersections: vehicles per five minutes, all events per ten, and where an accident was lately."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Sliding, Stream, Tumbling, Windowed, agg

traffic = Stream(
    name="traffic",
    description="One row per vehicle or accident.",
    source=Files("landing/traffic"),
    format=Json("location string not null, kind string not null, at timestamp not null"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)

vehicles = Windowed(
    name="vehicles",
    of=traffic,
    by=("location",),
    window=Tumbling("5 minutes"),
    where="kind = 'vehicle'",
    aggregates={"vehicles": agg.count()},
)

events = Windowed(name="events", of=traffic, window=Tumbling("10 minutes"), aggregates={"events": agg.count()})

recent_accidents = Windowed(
    name="recent_accidents",
    description="Accidents of the last five minutes, every minute.",
    of=traffic,
    by=("location",),
    window=Sliding("5 minutes", slide="1 minute"),
    where="kind = 'accident'",
    aggregates={"accidents": agg.count()},
)

pipeline = Pipeline(stream=traffic, views=(vehicles, events, recent_accidents))

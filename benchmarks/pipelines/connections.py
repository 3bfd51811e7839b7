"""The pipeline of the cluster: departures by hour, what each aircraft has flown, its connections, and a delivery."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from platform_assets.demo.pipelines.flights import departures_by_origin, flights
from streaming import Delivery, Joined, JsonLines, Keyed, Pipeline

cluster_flights = replace(flights, name="cluster_flights")
by_origin = replace(departures_by_origin, name="cluster_by_origin", of=cluster_flights)


def on_departure(key: Any, row: Any) -> None:
    """Number the departures of an aircraft, and say from where the one before it was."""
    key.departures = (key.departures or 0) + 1
    key.emit(number=key.departures, origin=row.origin, previous=key.origin)
    key.origin = row.origin


aircraft = Keyed(
    "aircraft",
    cluster_flights,
    by=("tailnum",),
    state="departures bigint, origin string",
    result="number bigint, origin string, previous string",
    on_row=on_departure,
)
connections = Joined(
    "connections",
    cluster_flights,
    cluster_flights,
    on=("tailnum",),
    between=("30 minutes", "6 hours"),
    select={"tailnum": "tailnum", "dest": "left_dest", "onwards": "right_dest", "flight": "right_flight"},
)

pipeline = Pipeline(
    name="connections_of_aircraft",
    streams=(cluster_flights,),
    operators=(by_origin, aircraft, connections),
    deliveries=(Delivery("aircraft_out", aircraft, JsonLines("out/aircraft")),),
)

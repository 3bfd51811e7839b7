"""Departures from New York's three airports in 2013, reported by the airports when a flight leaves.

A delayed flight is reported late, so the first results of an hour miss exactly its most delayed flights.
"""

from streaming import agg
from streaming.clocks import BoundedOutOfOrderness
from streaming.declare import Pipeline, Rule, Stream, Windowed
from streaming.formats import Json
from streaming.sources import Files
from streaming.windows import Tumbling

ORIGINS = ("EWR", "JFK", "LGA")

flights = Stream(
    name="flights",
    description="One row per scheduled departure, reported when the flight leaves or is cancelled.",
    source=Files("landing/flights"),
    format=Json(
        "flight bigint, carrier string, origin string, dest string, tailnum string, sched_dep timestamp, "
        "dep_delay double, arr_delay double, air_time double, distance double, cancelled boolean"
    ),
    event_time="sched_dep",
    clock=BoundedOutOfOrderness("15 minutes", max_ahead="1 day"),
    rules=(
        Rule("flight_present", "flight is not null"),
        Rule("origin_known", f"origin in {ORIGINS}"),
        Rule("dest_present", "dest is not null"),
        Rule("cancelled_present", "cancelled is not null"),
        Rule("dep_delay_plausible", "if(cancelled, dep_delay is null, dep_delay between -120 and 3000)"),
    ),
)

departures_by_origin = Windowed(
    name="departures_by_origin",
    description="Departures per hour of schedule and airport.",
    of=flights,
    by=("origin",),
    window=Tumbling("1 hour"),
    aggregates={
        "flights": agg.count(),
        "cancelled": agg.count("cancelled"),
        "mean_dep_delay": agg.mean("dep_delay"),
        # On time as the US DOT counts: less than 15 minutes after schedule, of the flights that left.
        "on_time_share": agg.share("dep_delay < 15"),
    },
)

pipeline = Pipeline(stream=flights, views=(departures_by_origin,))

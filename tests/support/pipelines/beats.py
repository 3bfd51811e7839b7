"""A stream of heartbeats that does as it is told: a payload can make its batch crash."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, count, total
from streaming.restarts import ExponentialBackoff

beats = Stream(
    name="beats",
    source=Files("landing/beats"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("value_present", "value is not null"),),
    # ANSI mode: the division raises, which no rule can catch, and crashes the batch whenever it is run.
    derived={"inverse": "case when value = 0 then 1 div value else 1 end"},
)

by_id = Windowed("by_id", beats, Tumbling("10 seconds"), {"beats": count(), "sum": total("value")}, by=("id",))

pipeline = Pipeline(
    beats,
    (by_id,),
    restart=ExponentialBackoff(initial="100 milliseconds", maximum="1 second"),
    identical_failures=2,
    stop_within="30 seconds",
)

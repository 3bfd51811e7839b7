"""A stream of heartbeats that does as it is told: a payload can make its batch crash, or hang."""

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg
from streaming.declare.restarts import ExponentialBackoff

HANGS = "java_method('java.lang.System', 'getProperty', 'beats.hang', '0')"

beats = Stream(
    name="beats",
    source=Files("landing/beats"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("value_present", "value is not null"),),
    derived={
        # ANSI mode: the division raises, which no rule can catch, and crashes the batch whenever it is run.
        "inverse": "case when value = 0 then 1 div value else 1 end",
        # As many milliseconds as the JVM was started with: the batch hangs in one process, and passes in the next.
        "pause": f"case when value < 0 then java_method('java.lang.Thread', 'sleep', cast({HANGS} as bigint)) end",
    },
)

by_id = Windowed("by_id", beats, Tumbling("10 seconds"), {"beats": agg.count(), "sum": agg.sum("value")}, by=("id",))

pipeline = Pipeline(
    beats,
    (by_id,),
    restart=ExponentialBackoff(initial="100 milliseconds", maximum="1 second"),
    identical_failures=2,
    stop_within="30 seconds",
)

"""Readings of several gateways, a file of each at a time: the slowest one holds the watermark, unless it is silent.

The gateway is in the file's name, such as `p1-000042.json`.
"""

from streaming import Ascending, Files, Json, Pipeline, Stream, Tumbling, Windowed, agg, epoch_millis

gateway_readings = Stream(
    name="gateway_readings",
    description="One row per reading that a gateway has sent.",
    source=Files("landing/gateway_readings", files_per_batch=2, partition="/(p[0-9]+)-[^/]*$"),
    format=Json("id string not null, timestamp bigint not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=Ascending(idle_after="2 minutes"),
)

gateway_by_10_seconds = Windowed(
    name="gateway_by_10_seconds",
    of=gateway_readings,
    by=("id",),
    window=Tumbling("10 seconds"),
    aggregates={"readings": agg.count()},
)

pipeline = Pipeline(stream=gateway_readings, views=(gateway_by_10_seconds,))

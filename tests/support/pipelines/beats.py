"""A stream of heartbeats that does as it is told: a payload can make its batch hang, a file make it crash."""

from pathlib import Path

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
        # As many milliseconds as the JVM was started with: the batch hangs in one process, and passes in the next.
        "pause": f"case when value < 0 then java_method('java.lang.Thread', 'sleep', cast({HANGS} as bigint)) end",
    },
)

by_id = Windowed("by_id", beats, Tumbling("10 seconds"), {"beats": agg.count(), "sum": agg.sum("value")}, by=("id",))


def land_damaged(folder: Path, name: str) -> None:
    """Land a file that is not packed as its name says: Spark fails in the midst of its batch, again and again."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json.snappy").write_bytes(bytes([0, 0, 0, 10, 0, 0, 0, 5]) + b"\xff" * 5)


pipeline = Pipeline(
    beats,
    (by_id,),
    restart=ExponentialBackoff(initial="100 milliseconds", maximum="1 second"),
    identical_failures=2,
    stop_within="30 seconds",
)

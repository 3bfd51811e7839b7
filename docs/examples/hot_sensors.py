"""Readings above a limit, counted per bucket of sensors, and per sensor within its bucket."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Stream, bucket_of, epoch_millis

BUCKETS = 4
LIMIT = 120.0

hot_sensors = Stream(
    name="hot_sensors",
    description="One row per reading of a sensor, with the bucket in which its hits are counted.",
    source=Files("landing/hot_sensors"),
    format=Json("id string not null, timestamp bigint not null, temperature double not null"),
    derived={"event_time": epoch_millis("timestamp"), "bucket": f"cast({bucket_of('id', BUCKETS)} as int)"},
    event_time="event_time",
    clock=BoundedOutOfOrderness("5 seconds"),
)


def count_hit(key: Key, row: Any) -> None:
    """Count the readings of a bucket that are above the limit."""
    if row.temperature > LIMIT:
        key.hits = (key.hits or 0) + 1
        key.emit(hits=key.hits)


def count_hit_by_sensor(key: Key, row: Any) -> None:
    """Count them also for each sensor of the bucket."""
    if row.temperature > LIMIT:
        key.hits = (key.hits or 0) + 1
        key.by_id = {**(key.by_id or {}), row.id: (key.by_id or {}).get(row.id, 0) + 1}
        key.emit(id=row.id, hits_of_id=key.by_id[row.id], hits=key.hits)


shape = "id string, hits_of_id bigint, hits bigint"
hits_per_bucket = Keyed("hits_per_bucket", hot_sensors, ("bucket",), "hits bigint", "hits bigint", count_hit)
hits_by_sensor = Keyed(
    "hits_by_sensor", hot_sensors, ("bucket",), "hits bigint, by_id map<string, bigint>", shape, count_hit_by_sensor
)
pipeline = Pipeline(stream=hot_sensors, views=(hits_per_bucket, hits_by_sensor))

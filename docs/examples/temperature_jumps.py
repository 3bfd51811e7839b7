"""Alerts on jumps of temperature between two readings of a sensor; a sensor that falls silent is forgotten."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Stream, epoch_millis, micros

readings = Stream(
    name="jump_readings",
    description="One row per reading of a sensor.",
    source=Files("landing/jump_readings"),
    format=Json("id string not null, timestamp bigint not null, temperature double not null"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("5 seconds"),
)


def alert_on_jump(key: Key, row: Any) -> None:
    """Compare a reading with the one before it; the first one has none."""
    if key.previous is not None and abs(row.temperature - key.previous) > 1.7:
        key.emit(temperature=row.temperature, jump=abs(row.temperature - key.previous))
    key.previous = row.temperature
    key.timer("forget", max(key.at + micros("1 hour"), key.pending("forget") or key.at))


def forget(key: Key) -> None:
    """Keep nothing of a sensor that had no reading for an hour."""
    key.clear()


shape = "temperature double, jump double"
jumps = Keyed("jumps", readings, ("id",), "previous double", shape, alert_on_jump, timers={"forget": forget})
pipeline = Pipeline(stream=readings, views=(jumps,))

"""Sensors whose temperature has not fallen for a second since it began to rise."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Stream, micros

furnaces = Stream(
    name="furnaces",
    description="Four readings a second of each sensor.",
    source=Files("landing/furnaces"),
    format=Json("id string not null, read_at timestamp not null, temperature double not null"),
    event_time="read_at",
    clock=BoundedOutOfOrderness("1 second"),
)


def watch(key: Key, row: Any) -> None:
    """A rise sets the timer, a fall cancels it, and a plateau leaves it as it is."""
    previous, key.previous = key.previous, row.temperature
    if previous is None or row.temperature < previous:
        key.cancel("warn")
    elif row.temperature > previous and key.pending("warn") is None:
        key.timer("warn", key.at + micros("1 second"))


def warn(key: Key) -> None:
    """It has risen for a second; what comes next may begin another rise."""
    key.emit(temperature=key.previous)


rises = Keyed(
    "rises", furnaces, ("id",), "previous double", "temperature double", watch, timers={"warn": warn}, order="event"
)
pipeline = Pipeline(stream=furnaces, views=(rises,))

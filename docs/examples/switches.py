"""Readings pass while a switch of their sensor is on; a further switch may keep it on for longer, never for less."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Stream

CLOCK = BoundedOutOfOrderness("1 second", idle_after="1 minute")
switches = Stream(
    name="switches",
    source=Files("landing/switches"),
    format=Json("id string not null, at timestamp not null, milliseconds bigint not null"),
    event_time="at",
    clock=CLOCK,
)
switched = Stream("switched", Files("landing/switched"), Json("id string not null, at timestamp not null"), "at", CLOCK)


def switch(key: Key, row: Any) -> None:
    """A switch moves the end of its sensor's time; a reading passes before that, or not at all."""
    if key.stream == "switches":
        key.off_at = max(key.at + row.milliseconds * 1000, key.off_at or key.at)
        key.timer("off", key.off_at)
    elif key.off_at is not None:
        key.emit(off_at=key.off_at)


def off(key: Key) -> None:
    """Whoever is not switched on has no state."""
    key.clear()


timers = {"off": off}
# Of one instant the switch comes first, since its stream is declared first.
passed = Keyed(
    "passed", (switches, switched), ("id",), "off_at timestamp", "off_at timestamp", switch, timers, order="event"
)
pipeline = Pipeline(name="switched", streams=(switches, switched), operators=(passed,))

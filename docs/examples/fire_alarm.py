"""A fire alarm: smoke at most ten minutes after the newest heat at the same place."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Stream, followed_by

detectors = Stream(
    name="detectors",
    description="One row per message of a detector: heat, or smoke.",
    source=Files("landing/detectors"),
    format=Json("place string not null, seen string not null, seen_at timestamp not null"),
    event_time="seen_at",
    clock=BoundedOutOfOrderness("5 minutes"),
)


def is_heat(row: Any) -> bool:
    """True for heat, with which an alarm begins."""
    return bool(row.seen == "heat")


def is_smoke(row: Any) -> bool:
    """True for smoke, which after heat makes an alarm."""
    return bool(row.seen == "smoke")


alarms = followed_by("alarms", detectors, first=is_heat, then=is_smoke, within="10 minutes", by=("place",))
pipeline = Pipeline(stream=detectors, views=(alarms,))

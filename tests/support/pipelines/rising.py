"""Operators that commit to every kind of table a step has: results, panes, updates, sides, state."""

from typing import Any

from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pipeline, Sliding, Stream, Tumbling, Windowed, agg

meters = Stream(
    name="meters",
    source=Files("landing/meters"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
folded = Windowed(
    "folded",
    meters,
    Sliding("20 seconds", "10 seconds"),
    {"readings": agg.count(), "sum": agg.sum("value")},
    by=("id",),
)
updated = Windowed(
    "updated",
    meters,
    Tumbling("10 seconds"),
    {"readings": agg.count(), "sum": agg.sum("value")},
    by=("id",),
    late="update",
    allowed_lateness="1 hour",
)


def _rise(key: Key, row: Any) -> None:
    """How much a meter has risen, and aside what it showed before."""
    if key.previous is not None:
        key.emit(rise=row.value - key.previous)
        key.emit("before", previous=key.previous)
    key.previous = row.value


rises = Keyed("rises", meters, ("id",), "previous bigint", "rise bigint", _rise, sides={"before": "previous bigint"})
pipeline = Pipeline(meters, (folded, updated, rises))

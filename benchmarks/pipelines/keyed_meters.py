"""The pipeline of the soak of keyed functions: the same meters, and what is told of each by functions with state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.pipelines.meters import meters as plain_meters
from benchmarks.pipelines.meters import pipeline as plain
from streaming import BoundedOutOfOrderness, Files, Json, Key, Keyed, Pinned, Pipeline, Stream, count_window, micros

keyed_meters = replace(plain_meters, name="keyed_meters", source=Files("landing/keyed_meters", files_per_batch=20))

limits = Stream(
    name="limits",
    description="The most that each meter may show, set anew while it runs.",
    source=Files("landing/limits"),
    format=Json("meter string not null, most double not null, number bigint not null, set_at timestamp not null"),
    event_time="set_at",
    clock=BoundedOutOfOrderness("10 seconds", idle_after="30 seconds"),
)

_HIGH, _LOW = 8.5, 0.5
_MINUTE, _TEN_SECONDS = micros("1 minute"), micros("10 seconds")


def on_jump(key: Key, row: Any) -> None:
    """K6: far from the value before."""
    if key.previous is not None and abs(row.value - key.previous) > 7:
        key.emit(value=row.value, jump=abs(row.value - key.previous))
    key.previous = row.value


def on_reading(key: Key, row: Any) -> None:
    """K11: the same, of a value that is not older than ten seconds."""
    fresh = key.newest is not None and row.at < key.newest + _TEN_SECONDS
    if fresh and abs(row.value - key.previous) > 8:
        key.emit(value=row.value)
    key.previous, key.newest = row.value, row.at if key.newest is None else max(row.at, key.newest)
    key.timer("forget", max(key.newest + _TEN_SECONDS, key.at))


def forget(key: Key) -> None:
    """Forget a value that is too old to be compared with."""
    key.clear()


def on_fire(key: Key, row: Any) -> None:
    """K14: a high value, then a low one within a minute."""
    if row.value > _HIGH:
        key.high_at = row.at
        key.timer("too_late", row.at + _MINUTE)
    elif row.value < _LOW and key.high_at is not None:
        key.emit(high_at=key.high_at)
        key.clear()


def on_limited(key: Key, row: Any) -> None:
    """More than the limit that is in force."""
    limit = key.rules.get(key.key)
    if limit is not None and row.value > limit.most:
        key.emit(value=row.value, number=limit.number)


def to_sum(values: list[float]) -> dict[str, Any]:
    """W18: the sum of the last values."""
    return {"readings": len(values), "total": sum(values)}


by = ("meter",)
jumps = Keyed("jumps", keyed_meters, by, "previous double", "value double, jump double", on_jump)
fresh_jumps = Keyed(
    "fresh_jumps",
    keyed_meters,
    by,
    "previous double, newest timestamp",
    "value double",
    on_reading,
    timers={"forget": forget},
)
fires = Keyed(
    "fires",
    keyed_meters,
    by,
    "high_at timestamp",
    "high_at timestamp",
    on_fire,
    timers={"too_late": forget},
    order="event",
    idle="30 minutes",
)
last_hundred = count_window(
    "last_hundred",
    keyed_meters,
    size=100,
    slide=10,
    value="value",
    function=to_sum,
    result="readings bigint, total double",
    by=by,
)
limited = Keyed(
    "limited",
    keyed_meters,
    by,
    "",
    "value double, number bigint",
    on_limited,
    rules=Pinned(limits, by=by, version="number"),
)

pipeline = Pipeline(
    name="keyed_meters",
    streams=(keyed_meters, limits),
    operators=(jumps, fresh_jumps, fires, last_hundred, limited),
    restart=plain.restart,
    stop_within="10 seconds",
)

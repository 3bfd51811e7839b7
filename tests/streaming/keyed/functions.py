"""Keyed functions of the applications, over one stream of sensor readings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed, micros
from streaming.declare.stream import Stream, epoch_millis
from streaming.formats.json import Json
from streaming.keyed.count_windows import count_window
from streaming.keyed.fold import Key
from streaming.keyed.latest import latest
from streaming.sources.files import Files
from tests.support.instants import at, ms

readings = Stream(
    name="readings",
    source=Files("landing/readings", files_per_batch=1),
    format=Json("id string not null, timestamp bigint not null, temperature double"),
    derived={"event_time": epoch_millis("timestamp")},
    event_time="event_time",
    clock=BoundedOutOfOrderness("0 seconds"),
)

SECOND, HOUR = micros("1 second"), micros("1 hour")


def alert_on_jump(key: Key, row: Any) -> None:
    if key.previous is not None and abs(row.temperature - key.previous) > 1.7:
        key.emit(temperature=row.temperature, jump=abs(row.temperature - key.previous))
    key.previous = row.temperature


jumps = Keyed("jumps", readings, ("id",), "previous double", "temperature double, jump double", alert_on_jump)
"""K6"""


def alert_and_forget(key: Key, row: Any) -> None:
    fresh = key.newest is not None and row.event_time < key.newest + HOUR
    if fresh and abs(row.temperature - key.previous) > 1.5:
        key.emit(temperature=row.temperature, jump=abs(row.temperature - key.previous))
    key.previous = row.temperature
    key.newest = row.event_time if key.newest is None else max(row.event_time, key.newest)
    key.timer("forget", key.newest + HOUR)


def forget(key: Key) -> None:
    key.clear()


def rows(drawn: str) -> list[dict[str, Any]]:
    """Readings in the notation `a@3.5=20, b@1:10=4, b@0:09:59.999`: key, time after T0, and temperature."""
    records = []
    for entry in filter(None, map(str.strip, drawn.split(","))):
        name, _, rest = entry.partition("@")
        time, _, value = rest.partition("=")
        seconds = sum(float(part) * 60**place for place, part in enumerate(reversed(_parts(time))))
        value_of = float(value) if value else None
        records.append({"id": name, "timestamp": ms(at(seconds)), "event_time": at(seconds), "temperature": value_of})
    return records


def _parts(time: str) -> list[str]:
    """Hours, minutes and seconds, or seconds alone."""
    parts = time.split(":")
    return [*parts, "0"] if len(parts) == 2 else parts


def payloads(drawn: str) -> list[dict[str, Any]]:
    """The same as a sensor writes them."""
    return [{name: value for name, value in row.items() if name != "event_time"} for row in rows(drawn)]


self_cleaning = Keyed(
    name="self_cleaning",
    of=readings,
    by=("id",),
    state="previous double, newest timestamp",
    result="temperature double, jump double",
    on_row=alert_and_forget,
    timers={"forget": forget},
)
"""K11"""


def watch_rise(key: Key, row: Any) -> None:
    previous, key.previous = key.previous, row.temperature
    if previous is None or row.temperature < previous:
        key.cancel("warn")
    elif row.temperature > previous and key.pending("warn") is None:
        key.timer("warn", key.at + SECOND)


def warn(key: Key) -> None:
    key.emit(warned_at=key.at)


rises = Keyed(
    name="rises",
    of=readings,
    by=("id",),
    state="previous double",
    result="warned_at timestamp",
    on_row=watch_rise,
    timers={"warn": warn},
    order="event",
)
"""K12"""


def add_up(key: Key, row: Any) -> None:
    key.total = (key.total or 0) + int(row.temperature)
    key.emit(total=key.total)


sums = Keyed("sums", readings, ("id",), "total bigint", "total bigint", add_up)
"""K1, K17"""


def count_rows(key: Key, row: Any) -> None:
    key.rows = (key.rows or 0) + 1
    key.emit(rows=key.rows)


counts = Keyed("counts", readings, ("id",), "rows bigint", "rows bigint", count_rows)
"""K18"""


def forward_while_on(key: Key, row: Any) -> None:
    if row.temperature < 0:
        if key.off_at is not None and row.event_time < key.off_at:
            key.emit(forwarded_at=row.event_time)
        return
    off_at = row.event_time + int(row.temperature) * SECOND
    key.off_at = max(off_at, key.off_at or off_at)
    key.timer("off", key.off_at)


switches = Keyed(
    name="switches",
    of=readings,
    by=("id",),
    state="off_at timestamp",
    result="forwarded_at timestamp",
    on_row=forward_while_on,
    timers={"off": forget},
    order="event",
)
"""K13: a reading with a number switches its id on for so many seconds, one below zero is forwarded."""

TEN_MINUTES = micros("10 minutes")
HEAT = 1.0


def watch_fire(key: Key, row: Any) -> None:
    if row.temperature == HEAT:
        key.heat_at = row.event_time
        key.timer("too_late", row.event_time + TEN_MINUTES + 1000)
    elif key.heat_at is not None:
        key.emit(heat_at=key.heat_at, smoke_at=row.event_time)
        key.clear()


fires = Keyed(
    name="fires",
    of=readings,
    by=("id",),
    state="heat_at timestamp",
    result="heat_at timestamp, smoke_at timestamp",
    on_row=watch_fire,
    timers={"too_late": forget},
    order="event",
)
"""K14: a reading of 1 is heat, any other is smoke."""


def sort_out(key: Key, row: Any) -> None:
    if row.temperature == 13:
        raise ValueError("thirteen")
    key.seen = [*(key.seen or []), row.temperature]
    key.emit("" if row.temperature > 0 else "negative", temperature=row.temperature, late=key.late)
    key.timer("settled", max(key.at, key.pending("settled") or key.at) + 5 * SECOND)


def settle(key: Key) -> None:
    key.emit(temperature=sum(key.seen), late=False)
    key.clear()


sorted_out = Keyed(
    name="sorted_out",
    of=readings,
    by=("id",),
    state="seen array<double>",
    result="temperature double, late boolean",
    on_row=sort_out,
    timers={"settled": settle},
    sides={"negative": "temperature double, late boolean"},
    on_error="side",
)
"""Every kind of table: results, a side output, what failed, and state with timers."""


def added(values: list[float]) -> Mapping[str, Any]:
    return {"sum": sum(values)}


slid = count_window(
    "slid", readings, size=4, slide=3, by=("id",), value="temperature", function=added, result="sum double"
)
"""W16"""

fours = count_window("fours", readings, size=4, value="temperature", function=added, result="sum double")
"""W15"""

newest = latest("newest", readings, ("id",))
"""The newest reading of each sensor, and those before it."""

"""A function that tells how it was called, and what it must have said of all rows by event time, late or not."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.keyed.fold import Key
from tests.streaming.keyed.functions import SECOND, readings

DELAY, IDLE = 3, 4


class Row(NamedTuple):
    """A row: key, seconds after T0, value."""

    key: str
    when: int
    value: int


Batch = Sequence[Row]


def tell(key: Key, row: Any) -> None:
    """Each value does something else with state, timers and outputs."""
    value = int(row.temperature)
    if value == 9:
        raise ValueError("nine")
    key.said = f"{key.said or ''}{value}"
    if value == 0:
        key.clear()
    elif value == 1:
        key.timer("soon", key.at + 2 * SECOND)
    elif value == 2:
        # Kept beyond the key's clearing, and forgotten after its session like all else.
        key.clear()
        key.said = "2"
        key.timer("later", key.at + 30 * SECOND)
    elif value == 3:
        key.cancel("soon")
    elif value == 4:
        key.emit("side", said=key.said)
    if value != 5:
        key.emit(said=key.said, late=key.late)


def tell_soon(key: Key) -> None:
    key.said = f"{key.said or ''}s"
    key.emit(said=key.said, late=key.late)
    if len(key.said) % 2:
        key.timer("later", key.at + SECOND)


def tell_later(key: Key) -> None:
    key.emit("side", said=key.said)
    key.clear()
    key.said = "l"


told = Keyed(
    name="told",
    of=replace(readings, clock=BoundedOutOfOrderness(f"{DELAY} seconds")),
    by=("id",),
    state="said string",
    result="said string, late boolean",
    on_row=tell,
    timers={"soon": tell_soon, "later": tell_later},
    sides={"side": "said string"},
    order="event",
    idle=f"{IDLE} seconds",
    on_error="side",
)


class Session:
    """One activity session of a key, from nothing: what is said until it ends, or until the clock is there."""

    def __init__(self, clock: float) -> None:
        self.clock = clock
        self.said: str | None = None
        self.timers: dict[str, int] = {}
        self.lines: list[tuple[str, int, Any]] = []

    def go_through(self, rows: Sequence[Row]) -> list[tuple[str, int, Any]]:
        for row in rows:
            self._ring(row.when)
            self._row(row.when, row.value)
        self._ring(min(rows[-1].when + IDLE - 1, self.clock))
        return self.lines

    def _row(self, when: int, value: int) -> None:
        if value == 9:
            self.lines.append(("failed", when, "nine"))
            return
        self.said = (self.said or "") + str(value)
        match value:
            case 0:
                self.said, self.timers = None, {}
            case 1:
                self.timers["soon"] = when + 2
            case 2:
                self.said, self.timers = "2", {"later": when + 30}
            case 3:
                self.timers.pop("soon", None)
            case 4:
                self.lines.append(("side", when, self.said))
        if value != 5:
            self.lines.append(("", when, self.said))

    def _ring(self, until: float) -> None:
        while self.timers:
            name = min(self.timers, key=lambda each: (self.timers[each], each))
            when = self.timers[name]
            if when > until:
                return
            del self.timers[name]
            if name == "soon":
                self.said = (self.said or "") + "s"
                self.lines.append(("", when, self.said))
                if len(self.said) % 2 == 1:
                    self.timers["later"] = when + 1
            else:
                self.lines.append(("side", when, self.said))
                self.said, self.timers = "l", {}


def over_all_rows(batches: Iterable[Batch]) -> dict[str, list[tuple[str, int, Any]]]:
    """What must be current, by output: key, seconds after T0, and what was said; sorted."""
    rows = [row for batch in batches for row in batch]
    clock = max((row.when for row in rows), default=0) - DELAY
    lines_by_output: dict[str, list[tuple[str, int, Any]]] = {"": [], "side": [], "failed": []}
    for key in sorted({row.key for row in rows}):
        mine = sorted((row for row in rows if row.key == key and row.when < clock), key=lambda row: row.when)
        sessions: list[list[Row]] = []
        for row in mine:
            if sessions and row.when < sessions[-1][-1].when + IDLE:
                sessions[-1].append(row)
            else:
                sessions.append([row])
        for session in sessions:
            for to, when, text in Session(clock).go_through(session):
                lines_by_output[to].append((key, when, text))
    return {to: sorted(lines, key=repr) for to, lines in lines_by_output.items()}

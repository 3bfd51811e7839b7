"""However the log is cut into steps, a keyed function gives the same outputs, timers and state: those of an oracle."""

from __future__ import annotations

import heapq
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.keyed.fold import Key
from tests.streaming.keyed.functions import SECOND, readings
from tests.support.examples import many
from tests.support.instants import at, ms
from tidemark.testing import Played, play

DELAY = 3
IDLE = 4

Batch = list[tuple[str, int, int]]
"""Rows of one batch: key, seconds after T0, value."""


def on_row(key: Key, row: Any) -> None:
    """Uses all that a key has, in ways that tell one order of calls from another."""
    value = int(row.temperature)
    if value == 9:
        raise ValueError("nine")
    key.said = f"{key.said or ''}{value}"
    key.total = (key.total or 0.0) + value
    if value == 0:
        key.clear()
    elif value == 1:
        key.timer("soon", key.at + 2 * SECOND)
    elif value == 2:
        key.timer("later", max(key.at, key.pending("later") or key.at) + 5 * SECOND)
    elif value == 3:
        key.cancel("soon")
    elif value == 4:
        key.emit("side", total=key.total)
    key.emit(said=key.said, late=key.late)


def on_soon(key: Key) -> None:
    key.said = f"{key.said or ''}s"
    key.emit(said=key.said, late=key.late)
    if len(key.said) % 2:
        key.timer("later", key.at + SECOND)


def on_later(key: Key) -> None:
    key.emit("side", total=None)
    key.clear()


def function(order: Literal["arrival", "event"], idle: bool) -> Keyed:
    return Keyed(
        name="tried",
        of=replace(readings, clock=BoundedOutOfOrderness(f"{DELAY} seconds")),
        by=("id",),
        state="said string, total double",
        result="said string, late boolean",
        on_row=on_row,
        timers={"soon": on_soon, "later": on_later},
        sides={"side": "total double"},
        order=order,
        idle=f"{IDLE} seconds" if idle else None,
        on_error="side",
    )


class Oracle:
    """What must come of one key's rows, told call by call in seconds, with a queue of what is to happen."""

    def __init__(self, idle: bool) -> None:
        self.idle = idle
        self.said: str | None = None
        self.total: float | None = None
        self.timers: dict[str, int] = {}
        self.emitted: list[tuple[str, int, Any]] = []

    def until(self, clock: float) -> None:
        while self.timers:
            queue = [(when, name != "idle", name) for name, when in self.timers.items()]
            heapq.heapify(queue)
            when, _, name = queue[0]
            if when > clock:
                return
            del self.timers[name]
            if name == "soon":
                self.said = (self.said or "") + "s"
                self.emitted.append(("", when, (self.said, False)))
                if len(self.said) % 2 == 1:
                    self.timers["later"] = when + 1
            else:
                if name == "later":
                    self.emitted.append(("side", when, (None,)))
                self.forget()

    def forget(self) -> None:
        self.said = self.total = None
        self.timers = {}

    def row(self, when: int, value: int, late: bool) -> None:
        if self.idle:
            self.timers["idle"] = max(when + IDLE, self.timers.get("idle", when + IDLE))
        if value == 9:
            self.emitted.append(("failed", when, "nine"))
            return
        text = (self.said or "") + str(value)
        total = (self.total or 0) + value
        self.said, self.total = text, total
        if value == 0:
            self.forget()
            text = None  # type: ignore[assignment]
        if value == 1:
            self.timers["soon"] = when + 2
        if value == 2:
            self.timers["later"] = max(when, self.timers.get("later", when)) + 5
        if value == 3:
            self.timers.pop("soon", None)
        if value == 4:
            self.emitted.append(("side", when, (total,)))
        self.emitted.append(("", when, (text, late)))


def expected(batches: list[Batch], order: str, idle: bool) -> dict[str, Oracle]:
    greatest = float("-inf")
    stamped = []
    for batch in batches:
        stamped += [(key, when, value, greatest - DELAY) for key, when, value in batch]
        greatest = max([greatest, *(when for _, when, _ in batch)])
    clock = greatest - DELAY
    oracles: dict[str, Oracle] = {}
    if order == "event":
        stamped = [row for row in stamped if row[1] >= row[3]]
        stamped = sorted((row for row in stamped if row[1] < clock), key=lambda row: row[1])
    for key, when, value, stamp in stamped:
        oracle = oracles.setdefault(key, Oracle(idle))
        oracle.until(when if order == "event" else stamp)
        oracle.row(when, value, when < stamp)
    for oracle in oracles.values():
        oracle.until(clock)
    return oracles


def shown(done: Played) -> dict[str, dict[str, Any]]:
    """What is left per key, in the oracle's words."""
    entries: dict[str, dict[str, Any]] = {}
    for to, rows in done.outputs.items():
        for key, when, *values in rows:
            entry = entries.setdefault(key, {"emitted": {}, "state": {}, "timers": {}})
            outcome = "nine" if to == "failed" and "nine" in values[0] else tuple(values)
            entry["emitted"].setdefault(to, []).append((to, when, outcome))
    for (key,), state in done.state.items():
        entries.setdefault(key, {"emitted": {}, "state": {}, "timers": {}})["state"] = dict(state)
    for (key,), timers in done.timers.items():
        entries[key]["timers"] = {name.removeprefix("_"): when for name, when in timers.items()}
    return entries


def told(oracles: dict[str, Oracle]) -> dict[str, dict[str, Any]]:
    entries: dict[str, dict[str, Any]] = {}
    for key, oracle in oracles.items():
        emitted: dict[str, list[Any]] = {}
        for to, when, values in oracle.emitted:
            emitted.setdefault(to, []).append((to, at(when), values))
        kept = oracle.said is not None or oracle.timers
        state = {"said": oracle.said, "total": oracle.total} if kept else {}
        timers = {name: at(when) for name, when in oracle.timers.items()}
        if emitted or kept:
            entries[key] = {"emitted": emitted, "state": state, "timers": timers}
    return entries


BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 25), st.integers(0, 9)), max_size=6), max_size=6
)
STEPS = st.lists(st.integers(0, 5))


@pytest.mark.sampled
@pytest.mark.parametrize("idle", [False, True], ids=["kept", "idle"])
@pytest.mark.parametrize("order", ["arrival", "event"])
@many
@given(batches=BATCHES, steps=STEPS)
def test_any_cut_into_steps_gives_what_the_oracle_says(
    order: Literal["arrival", "event"], idle: bool, batches: list[Batch], steps: list[int]
) -> None:
    drawn = [
        [
            {"id": key, "timestamp": ms(at(when)), "temperature": float(value), "event_time": at(when)}
            for key, when, value in batch
        ]
        for batch in batches
    ]
    done = play(function(order, idle), *drawn, steps=steps)
    assert shown(done) == told(expected(batches, order, idle))

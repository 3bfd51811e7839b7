"""A function of two streams and one with rules, whose outputs follow the order of every call; and what must come."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from streaming.clocks import BoundedOutOfOrderness
from streaming.declare.keyed import Keyed
from streaming.declare.pinned import Pinned
from streaming.keyed.fold import Key
from tests.streaming.keyed.connected import stream
from tests.streaming.keyed.functions import SECOND

DELAY = 2

lefts, rights = (
    replace(stream(name, "id string not null, n int"), clock=BoundedOutOfOrderness(f"{DELAY} seconds"))
    for name in ("lefts", "rights")
)
controls = stream("controls", "id string not null, version int not null")

Rows = list[tuple[str, int, int]]
"""Rows of one batch: key, seconds after T0, value."""


def say(key: Key, row: Any) -> None:
    key.said = f"{key.said or ''}{(key.stream or '')[0]}{row.n}"
    if row.n % 3 == 1:
        key.timer("soon", key.at + 2 * SECOND)
    key.emit(said=key.said)


def say_soon(key: Key) -> None:
    key.said = f"{key.said or ''}s"
    key.emit(said=key.said)


said = Keyed(
    name="said",
    of=(lefts, rights),
    by=("id",),
    state="said string",
    result="said string",
    on_row=say,
    timers={"soon": say_soon},
    order="event",
)


def by_one_clock(logs: dict[str, list[Rows]]) -> dict[str, list[Any]]:
    """What must come of both logs, told row by row: the texts per key and the times at which they were said."""
    rows, clocks = [], []
    for place, name in enumerate(("lefts", "rights")):
        greatest = float("-inf")
        for number, batch in enumerate(logs[name]):
            stamp = greatest - DELAY
            rows += [(when, place, number, at_, key, n) for at_, (key, when, n) in enumerate(batch) if when >= stamp]
            greatest = max([greatest, *(when for _, when, _ in batch)])
        clocks.append(greatest - DELAY)
    clock = min(clocks)
    lines_by_key: dict[str, list[Any]] = {}
    for key in {row[4] for row in rows}:
        text, soon, lines = "", None, []
        mine = sorted(row[:4] + row[5:] for row in rows if row[4] == key and row[0] < clock)
        for when, place, _, _, n in [*mine, (clock, 9, 0, 0, 0)]:
            if soon is not None and soon <= when:
                text += "s"
                lines.append((soon, text))
                soon = None
            if place < 9:
                text += f"{'lr'[place]}{n}"
                soon = when + 2 if n % 3 == 1 else soon
                lines.append((when, text))
        lines_by_key[key] = lines
    return {key: lines for key, lines in lines_by_key.items() if lines}


def say_rule(key: Key, row: Any) -> None:
    key.emit(what=f"row {row.n}", rule=_version(key))
    if row.n % 3:
        key.timer("due", key.at + (row.n % 3 - 1) * SECOND)


def say_rule_of_timer(key: Key) -> None:
    key.emit(what="timer", rule=_version(key))


def _version(key: Key) -> int:
    rule = key.rules.get(key.key)
    return -1 if rule is None else int(rule.version)


ruled = Keyed(
    name="ruled",
    of=lefts,
    by=("id",),
    state="",
    result="what string, rule int",
    on_row=say_rule,
    timers={"due": say_rule_of_timer},
    rules=Pinned(controls, by=("id",), version="version"),
)

Versions = list[tuple[str, int]]


def with_rules(batches: list[tuple[Versions | None, Rows]], order: str) -> list[tuple[Any, ...]]:
    """What must come, told row by row: (key, seconds, what, rule), in no order."""
    rules: dict[str, int] = {}
    stamped = []
    marks: list[tuple[float, dict[str, int]]] = []
    greatest = float("-inf")
    for versions, rows in batches:
        for key, version in versions or ():
            rules[key] = max(rules.get(key, version), version)
        stamped += [(key, when, n, greatest - DELAY, dict(rules), len(marks)) for key, when, n in rows]
        greatest = max([greatest, *(when for _, when, _ in rows)])
        marks.append((greatest - DELAY, dict(rules)))
    clock = greatest - DELAY
    if order == "event":
        stamped = [row for row in stamped if row[1] >= row[3] and row[1] < clock]
        stamped.sort(key=lambda row: row[1])
    results: list[tuple[str, float, str, int]] = []
    for key in {row[0] for row in stamped}:
        due: tuple[float, int] | None = None
        end: tuple[str, float, int, float, dict[str, int], int] = (key, clock, 0, clock, {}, -1)
        for name, when, n, stamp, batch_rules, number in [*stamped, end]:
            if name != key:
                continue
            if due is not None and due[0] <= (when if order == "event" else stamp):
                first = next(place for place, (mark, _) in enumerate(marks) if mark >= due[0])
                results.append((key, due[0], "timer", marks[max(first, due[1])][1].get(key, -1)))
                due = None
            if number >= 0:
                results.append((key, when, f"row {n}", batch_rules.get(key, -1)))
                due = (when + n % 3 - 1, number) if n % 3 else due
    return sorted(results)

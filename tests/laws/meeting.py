"""Pipelines of streams that meet, drawn from a seed: joins of all kinds, functions of two streams, rules, calls.

Rows of either side are late, one side may fall silent, what arrives is cut into two drains, and the second of them dies
once between any two commits of its steps. What must come of it is computed from rows, batches and clocks alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    CoGrouped,
    Enriched,
    Joined,
    Lake,
    LookupRequest,
    Pipeline,
    SessionWindow,
    Sliding,
    Tumbling,
    WindowJoined,
    drain,
)
from streaming.declare.operator import Operator
from streaming.declare.two_sided import TwoSided
from streaming.operators import runtime as runtimes
from streaming.operators.runtime import runtime_of
from streaming.service.run import Run
from tests.laws.cases import tried
from tests.streaming.joins import oracle, windows_oracle
from tests.streaming.keyed.connected_oracle import (
    DELAY,
    Rows,
    Versions,
    by_one_clock,
    controls,
    lefts,
    rights,
    ruled,
    said,
    with_rules,
)
from tests.support.feeds import land_all
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import tuples
from tests.support.seeds import draws

KEYS = "abcdef"
LOWER, UPPER = timedelta(seconds=-6), timedelta(seconds=9)
RETRIES = 1
CALLS: Counter[int] = Counter()
"""How often each left row was asked for, by its number."""

Result = list[tuple[Any, ...]]


async def ask(row: Any, request: LookupRequest) -> dict[str, Any]:
    """Some rows are answered at the second attempt, and some never."""
    CALLS[row.n] += 1
    if row.n % 7 == 3 or (row.n % 5 == 1 and request.attempt == 1):
        raise ConnectionError("reset")
    return {"doubled": 2 * row.n}


def attempts(number: int) -> int:
    """How many calls a left row takes."""
    return 2 if number % 7 == 3 or number % 5 == 1 else 1


def unequal(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    """Both lists, where one is longer; equal times have an order of their own in each log."""
    if len(left) != len(right):
        ordered = [sorted(rows, key=lambda row: (row.at, str(row.n))) for rows in (left, right)]
        yield {name: [str(row.n) for row in rows] for name, rows in zip(("a", "b"), ordered, strict=True)}


BETWEEN, VALUES = ("-6 seconds", "9 seconds"), {"a": "cast(left_n as string)", "b": "cast(right_n as string)"}
inner = Joined("inner_joined", lefts, rights, ("id",), BETWEEN)
left = Joined("left_joined", lefts, rights, ("id",), BETWEEN, "left")
outer = Joined("outer_joined", lefts, rights, ("id",), BETWEEN, "outer")
joined = WindowJoined("window_joined", lefts, rights, ("id",), Sliding("10 seconds", "5 seconds"), VALUES, "outer")
grouped = CoGrouped(
    "co_grouped", lefts, rights, ("id",), Tumbling("10 seconds"), "a array<string>, b array<string>", unequal
)
visits = CoGrouped(
    "visits", lefts, rights, ("id",), SessionWindow("3 seconds"), "a array<string>, b array<string>", unequal
)
asked = Enriched("asked", lefts, ask, {"doubled": "bigint"}, select=("n",), retries=RETRIES, timeout="60 seconds")

JOINED = tried("joins", (inner, left, outer), 1)
OVER_WINDOWS = tried("joins over windows", (joined, grouped, visits), 1)
PIPELINE = Pipeline(
    name="meeting", streams=(lefts, rights, controls), operators=(*JOINED, *OVER_WINDOWS, said, ruled, asked)
)


@dataclass(frozen=True)
class Meeting:
    """What arrives: the batches of both logs and the rules before each drain, and how it is cut and killed.

    `cut`: how many batches of either side the first drain has. `most_rows`: what a step takes of a log, per core.
    """

    left: list[Rows]
    right: list[Rows]
    versions: tuple[Versions, Versions]
    cut: tuple[int, int]
    most_rows: int
    dies_at: int

    @property
    def lefts(self) -> windows_oracle.Side:
        return _side(self.left)

    @property
    def rights(self) -> windows_oracle.Side:
        return _side(self.right)


def meeting(number: int) -> Meeting:
    """One of the meetings of this run; in two of three a side is silent from the middle on."""
    draw = draws("meeting", number)
    silent = ("right", "left", None)[number % 3]
    sides = []
    for name, first in (("left", 100), ("right", 500)):
        numbers = iter(range(first, first + 100))
        batches = 2 if name == silent else 4
        sizes = [draw.randint(5, 9) for _ in range(batches)]
        sides.append([[_row(draw, batch, next(numbers)) for _ in range(size)] for batch, size in enumerate(sizes)])
    versions: list[Versions] = [
        [(draw.choice(KEYS), draw.randrange(10)) for _ in range(draw.randint(1, 4))] for _ in range(2)
    ]
    cut = (draw.randrange(1, len(sides[0])), draw.randrange(1, len(sides[1]) + 1))
    most_rows = (1_000_000, 4)[number % 2]
    return Meeting(sides[0], sides[1], (versions[0], versions[1]), cut, most_rows, draw.randint(1, 20))


def _row(draw: Random, batch: int, number: int) -> tuple[str, int, int]:
    seconds = 12 * batch + draw.randrange(14) - draw.choice((0, 0, 0, 0, 15, 40))
    return draw.choice(KEYS), max(0, seconds), number


def run(spark: SparkSession, lake: Lake, of: Meeting) -> None:
    """Both drains, the second once more after it has died."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(runtimes, "ROWS_PER_CORE", of.most_rows)
        _land(lake, of, 0)
        drain(spark, lake, PIPELINE, now=lambda: NOW)
        _land(lake, of, 1)
        stepping = Run.step_all
        with pytest.MonkeyPatch.context() as dying, suppress(Killed):

            def dies(running: Run) -> None:
                killed_at(of.dies_at, dying)
                stepping(running)

            dying.setattr(Run, "step_all", dies)
            drain(spark, lake, PIPELINE, now=lambda: NOW)
        drain(spark, lake, PIPELINE, now=lambda: NOW)


def _land(lake: Lake, of: Meeting, number: int) -> None:
    land_all(lake, controls, [{"id": key, "version": new, "at": T0.isoformat()} for key, new in of.versions[number]])
    for stream, batches, cut in ((lefts, of.left, of.cut[0]), (rights, of.right, of.cut[1])):
        for batch in batches[cut:] if number else batches[:cut]:
            land_all(lake, stream, [{"id": key, "at": at(when).isoformat(), "n": n} for key, when, n in batch])


def _side(batches: Sequence[Rows]) -> windows_oracle.Side:
    rows = [[windows_oracle.Row(key, when, str(number)) for key, when, number in batch] for batch in batches]
    return windows_oracle.Side(rows, DELAY)


def interval_joined(of: Meeting, kind: str) -> dict[str, set[tuple[int | None, int | None]]]:
    """The numbers of pairs, of rows that were told of alone, and of what is current."""
    rows = [
        [
            oracle.Row(int(row.value), row.key, at(row.at), None if stamp is None else at(stamp))
            for row, stamp in side.stamped()
        ]
        for side in (of.lefts, of.rights)
    ]
    clock = at(min(of.lefts.clock, of.rights.clock))
    matches = oracle.pairs(rows[0], rows[1], LOWER, UPPER)
    pairs: set[tuple[int | None, int | None]] = {(one.n, other.n) for one, other in matches}
    orphans, lonely = set[tuple[int | None, int | None]](), set[tuple[int | None, int | None]]()
    if kind != "inner":
        alone, still = oracle.unmatched(rows[0], lambda row: {b for a, b in matches if a == row}, UPPER, clock)
        orphans, lonely = {(row.n, None) for row in alone}, {(row.n, None) for row in still}
    if kind == "outer":
        alone, still = oracle.unmatched(rows[1], lambda row: {a for a, b in matches if b == row}, -LOWER, clock)
        orphans, lonely = orphans | {(None, row.n) for row in alone}, lonely | {(None, row.n) for row in still}
    return {"pairs": pairs, "unmatched": orphans, "current": pairs | lonely}


def in_windows(of: Meeting, operator: TwoSided, *, late: bool) -> Result:
    """Results of windows that both clocks have passed: key, start, end, values; `late`: with late rows."""
    if operator is visits:
        results = windows_oracle.sessions(of.lefts, of.rights, 3, windows_oracle.unequal, late=late)
    else:
        size, slide, lists = (10, 5, windows_oracle.outer) if operator is joined else (10, 10, windows_oracle.unequal)
        windows = windows_oracle.sliding(size, slide)
        results = windows_oracle.fixed(of.lefts, of.rights, windows, lists, late=late)
    return [(key, at(start), at(end), *values) for key, start, end, values in results]


def of_both(of: Meeting) -> Result:
    """What the function of both streams says: key, time, text."""
    lines_by_key = by_one_clock({"lefts": of.left, "rights": of.right})
    return [(key, at(when), text) for key, lines in lines_by_key.items() for when, text in lines]


def by_rules(of: Meeting) -> Result:
    """What the function with rules says: key, time, what, the rule."""
    batches: list[tuple[Versions | None, Rows]] = [
        ({0: of.versions[0], of.cut[0]: of.versions[1]}.get(number), rows) for number, rows in enumerate(of.left)
    ]
    return [(key, at(when), *rest) for key, when, *rest in with_rules(batches, "arrival")]


def found(spark: SparkSession, lake: Lake, operator: Operator, what: str, *columns: str) -> Result:
    """Rows of an operator without when they were written, in an order of their own."""
    frame = runtime_of(operator, lake).readable[what](spark).drop("_written_at", "_day")
    return in_order(tuples(frame, *columns))


def in_order(rows: Iterable[tuple[Any, ...]]) -> Result:
    """The same rows in an order that does not stumble over nulls."""
    return sorted(rows, key=repr)

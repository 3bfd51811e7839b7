"""Laws of window joins and co-groups over rows that are updated, deleted and taken back by hand.

The oracle is plain Python over what was sent and taken back, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    CoGrouped,
    Lake,
    Pipeline,
    SessionWindow,
    Sliding,
    Stream,
    Tumbling,
    WindowJoined,
)
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.declare.two_sided import TwoSided
from streaming.operations import RowChoice, retract
from streaming.operators.runtime import runtime_of
from tests.laws.standing import Side, before_end, by_own_time, sessions, side_of
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import CLICKS, ORDERS, PAYMENTS, Revision, came
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct, land_all

GAP, MIDNIGHT = 30, 86_400
AMOUNTS = {"a": "left_amount", "b": "right_amount"}


def unequal(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    """The amounts of both sides, where one has more rows."""
    if len(left) != len(right):
        yield {"a": sorted(row.amount for row in left), "b": sorted(row.amount for row in right)}


LISTS = "a array<bigint>, b array<bigint>"
PAIRS = WindowJoined("pairs", ORDERS, PAYMENTS, ("country",), Sliding("60 seconds", "30 seconds"), AMOUNTS, "outer")
GROUPS = CoGrouped("groups", ORDERS, CLICKS, ("country",), Tumbling("60 seconds"), LISTS, unequal)
VISITS = CoGrouped("visits", CLICKS, PAYMENTS, ("country",), SessionWindow(f"{GAP} seconds"), LISTS, unequal)
MET = WindowJoined("met", CLICKS, CLICKS, ("country",), SessionWindow(f"{GAP} seconds"), AMOUNTS, "left")
OPERATORS: tuple[TwoSided, ...] = (PAIRS, GROUPS, VISITS, MET)
Amounts = list[int]
Result = tuple[Any, ...]
"""Country, start and end in seconds after T0, then what either side has."""


def pairs_of(key: str | None, left: Amounts, right: Amounts, kind: str) -> list[tuple[Any, Any]]:
    """What a join makes of the amounts in one window; a null equals nothing."""
    if left and right and key is not None:
        return [(a, b) for a in left for b in right]
    alone: list[tuple[Any, Any]] = [(a, None) for a in left]
    return alone + ([(None, b) for b in right] if kind == "outer" else [])


def unequal_of(left: Amounts, right: Amounts) -> list[tuple[Amounts, Amounts]]:
    return [(sorted(left), sorted(right))] if len(left) != len(right) else []


def made(of: TwoSided, key: str | None, left: Amounts, right: Amounts) -> list[tuple[Any, Any]]:
    return pairs_of(key, left, right, of.kind) if isinstance(of, WindowJoined) else unequal_of(left, right)


def expected(of: TwoSided, left: Side, right: Side, *, first: bool) -> list[Result]:
    if left.clock is None or right.clock is None:
        return []
    clock = min(left.clock, right.clock)
    results = _sessions(of, left, right, clock, first) if of.window.merging else _fixed(of, left, right, clock, first)
    return in_order(results)


def _fixed(of: TwoSided, left: Side, right: Side, clock: float, first: bool) -> Iterator[Result]:
    size, slide = (60, 30) if of is PAIRS else (60, 60)
    starts = {
        row.time // slide * slide - back
        for side in (left, right)
        for row in side.rows
        for back in range(0, size, slide)
        if row.time // slide * slide - back + size > row.time
    }
    for start in starts:
        end = start + size
        if end > clock:
            continue
        groups: dict[str | None, tuple[Amounts, Amounts]] = defaultdict(lambda: ([], []))
        in_time = before_end(end) if first else None
        for place, side in enumerate((left, right)):
            for row in side.standing(in_time):
                if start <= row.time < end:
                    groups[row.country][place].append(row.amount or 0)
        for key, amounts in groups.items():
            yield from ((key, start, end, *each) for each in made(of, key, *amounts))


def _sessions(of: TwoSided, left: Side, right: Side, clock: float, first: bool) -> Iterator[Result]:
    by_country: dict[str | None, list[tuple[float, tuple[int, int]]]] = defaultdict(list)
    for place, side in enumerate((left, right)):
        for row in side.standing(by_own_time if first else None):
            by_country[row.country].append((row.time, (place, row.amount or 0)))
    for key, rows in by_country.items():
        for start, end, met in sessions(rows, GAP):
            if end < clock:
                amounts = [[amount for place, amount in met if place == wanted] for wanted in (0, 1)]
                yield from ((key, start, end, *each) for each in made(of, key, *amounts))


def in_order(rows: Any) -> list[Result]:
    return sorted((tuple(row) for row in rows), key=repr)


def published(spark: SparkSession, lake: Lake, of: TwoSided, what: str) -> list[Result]:
    bounds = ("unix_micros(window_start)", "unix_micros(window_end)")
    rows = runtime_of(of, lake).readable[what](spark).selectExpr("country", *bounds, "a", "b").collect()
    origin = int(T0.timestamp() * 1_000_000)
    return in_order((row[0], (row[1] - origin) / 1e6, (row[2] - origin) / 1e6, *row[3:]) for row in rows)


@dataclass
class Story:
    """A lake, what is sent to it, and which rows somebody has taken back from the clicks."""

    spark: SparkSession
    lake: Lake
    pipeline: Pipeline
    versions: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    turned: dict[int, tuple[int, list[Revision]]] = field(default_factory=dict)
    undoable: dict[int, list[Revision]] = field(default_factory=dict)

    def sides(self) -> dict[str, Side]:
        sides = {}
        for stream in self.pipeline.streams:
            batches = came(self.spark, self.lake, stream)
            turned = self.turned if stream is CLICKS else {}
            of_rows = {number: rows for number, rows in batches.items() if number not in turned}
            sides[stream.name] = side_of(of_rows, keyed=bool(stream.key), turned=turned)
        return sides

    def send(self, chance: random.Random, until: float) -> None:
        for stream in self.pipeline.streams:
            # Each log begins with the first of these.
            least = 0 if any(name == stream.name for name, _ in self.versions) else 1
            rows = [self._drawn(chance, until, stream) for _ in range(chance.randint(least, 5))]
            if rows:
                land_all(self.lake, stream, [row.payload() for row in rows])

    def end(self, until: float) -> None:
        for stream in self.pipeline.streams:
            land_all(self.lake, stream, [Revision(f"end{until}", 1, until, "XX", 1).payload()])

    def take_back(self, amount: int) -> None:
        rows = [row for row in self.sides()["clicks"].standing() if row.amount == amount]
        number = self._turn(RowChoice(f"amount = {amount}"), -1, rows)
        if number is not None:
            self.undoable[number] = rows

    def put_back(self, number: int) -> None:
        self._turn(RowChoice(undoes=number), 1, self.undoable.pop(number))

    def _turn(self, chosen: RowChoice, sign: int, rows: list[Revision]) -> int | None:
        done = retract(self.spark, self.lake, self.pipeline, CLICKS, chosen, "wrong", "ada", lambda: NOW)
        assert (0 if done is None else done.rows) == len(rows)
        if done is None:
            return None
        self.turned[done.id] = (sign, rows)
        return done.id

    def check(self) -> None:
        sides = self.sides()
        for of in self.pipeline.operators:
            assert isinstance(of, TwoSided)
            both = sides[of.left.name], sides[of.right.name]
            for what in ("first", "current"):
                truth = expected(of, *both, first=what == "first")
                if both[0].clock is not None and both[1].clock is not None:
                    assert published(self.spark, self.lake, of, what) == truth, (of.name, what)
        assert [each for each in audit(self.spark, self.lake, self.pipeline) if not each.holds] == []

    def _drawn(self, chance: random.Random, until: float, stream: Stream) -> Revision:
        country, amount = chance.choice(("DE", "DE", "FR", None)), chance.randint(1, 4)
        seconds = max(0.0, until - chance.choice((0, 1, 15, 30, 31, 60, 100)))
        key = chance.choice("abcde")
        self.versions[stream.name, key] += 1
        version = self.versions[stream.name, key]
        if stream.key and chance.random() < 0.25:
            return Revision(key, version, None, None, None, True)
        return Revision(key, version, seconds, country, amount)


def corrected(story: Story, chance: random.Random, share: float) -> None:
    for of in story.pipeline.operators:
        for entry in runtime_of(of, story.lake).plan(story.spark):
            if chance.random() < share:
                runtime_of(of, story.lake).correct(story.spark, [entry.day], lambda: NOW)


def told(story: Story, chance: random.Random, rounds: int, patch: pytest.MonkeyPatch) -> None:
    # Some sessions begin before midnight and end after it.
    until = MIDNIGHT - chance.choice((40, 150, 300))
    for _ in range(rounds):
        until += chance.choice((10, 40, 60))
        story.send(chance, until)
        with patch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.4:
                killed_at(chance.randint(1, 12), patched)
            run(story.spark, story.lake, story.pipeline)
            corrected(story, chance, 0.4)
        if CLICKS in story.pipeline.streams and chance.random() < 0.5:
            # What a kill has left is finished first: rows are taken back of what came.
            run(story.spark, story.lake, story.pipeline)
            story.take_back(chance.randint(1, 4))
            if story.undoable and chance.random() < 0.5:
                story.put_back(chance.choice(list(story.undoable)))
    for later in (500, 1000):
        # At first some windows are open, and some are in time that was corrected.
        run(story.spark, story.lake, story.pipeline)
        for of in story.pipeline.operators:
            correct(story.spark, story.lake, of, lambda: NOW)
        story.check()
        story.end(until + later)
    run(story.spark, story.lake, story.pipeline)
    for of in story.pipeline.operators:
        correct(story.spark, story.lake, of, lambda: NOW)
        assert runtime_of(of, story.lake).plan(story.spark) == []
    story.check()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_what_meets_in_a_window_is_of_the_rows_that_stand_whatever_is_cut_killed_or_corrected(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"signed meeting {seed}")
    # Each operator is a step of each batch, and several audits.
    operators = tuple(chance.sample(OPERATORS, 2))
    streams = tuple(each for each in (ORDERS, PAYMENTS, CLICKS) if any(each in of.reads for of in operators))
    story = Story(spark, lake, Pipeline(name="shop", streams=streams, operators=operators))
    told(story, chance, 5, monkeypatch)


@pytest.mark.sampled
@pytest.mark.parametrize("of", [PAIRS, VISITS], ids=lambda of: of.name)
def test_what_meets_in_a_window_is_of_the_rows_that_stand(spark: SparkSession, lake: Lake, of: TwoSided) -> None:
    pipeline = Pipeline(name="shop", streams=of.reads, operators=(of,))
    chance = draws(f"signed meeting {of.name}")
    story, until = Story(spark, lake, pipeline), 300.0
    for _ in range(2):
        until += chance.choice((10, 40, 60))
        story.send(chance, until)
        run(spark, lake, pipeline)
    story.end(until + 500)
    run(spark, lake, pipeline)
    correct(spark, lake, of, lambda: NOW)
    story.check()


def test_the_oracle_knows_what_stands_and_what_meets() -> None:
    a, b = Revision("a", 1, 5, "DE", 1), Revision("a", 2, 50, "DE", 2)
    side = side_of({0: [a, Revision("z", 1, 100, "FR", 9)], 1: [b]})
    assert [row.amount for row in side.standing()] == [9, 2]
    assert [row.amount for row in side.standing(lambda stamp, _: stamp < 60)] == [1, 9]
    assert (side.clock, pairs_of("DE", [1], [2], "left"), pairs_of(None, [1], [2], "outer")) == (
        90,
        [(1, 2)],
        [(1, None), (None, 2)],
    )
    moved = replace(b, seconds=60)
    assert side_of({0: [a, moved]}, keyed=False, turned={1: (-1, [a])}).standing() == [moved]
    assert side_of({0: [a, moved]}, keyed=False, turned={1: (-1, [a]), 2: (1, [a])}).standing() == [a, moved]
    left, right = side_of({0: [a, replace(b, id="end", seconds=200)]}), side_of({0: [b]})
    assert expected(PAIRS, left, right, first=False) == [("DE", -30.0, 30.0, 1, None)]

"""Laws of retractions: whoever takes back what, and whatever is killed, results are of the rows that stand.

The oracle is plain Python over what was sent and taken back, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.log import retractions
from streaming.operations import RowChoice, retract
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import read_current, run
from tests.support.seeds import draws
from tidemark.testing import correct

DELAY, SIZE = 10, 60
READINGS = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, version bigint, at timestamp, country string, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
)
ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=READINGS.format,
    event_time="at",
    clock=READINGS.clock,
    key=("id",),
    sequence="version",
)
Result = tuple[str, int, int, int, int]


@dataclass(frozen=True)
class Row:
    id: str
    version: int
    seconds: float
    country: str
    amount: int

    def payload(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in ("id", "version", "country", "amount")}, "at": self.at}

    @property
    def at(self) -> str:
        return at(self.seconds).isoformat()


@dataclass
class Oracle:
    """What came and what was taken back, each with the watermark in force, in seconds; later ones are never smaller."""

    greatest: float | None = None
    events: list[tuple[float | None, list[Row], list[tuple[str, int]]]] = field(default_factory=list)
    last: dict[tuple[str, int], int] = field(default_factory=dict)

    def came(self, rows: list[Row]) -> None:
        self.events.append((self._stamp(), rows, []))
        self.greatest = max([row.seconds for row in rows] + ([] if self.greatest is None else [self.greatest]))

    def turned(self, rows: list[tuple[str, int]]) -> None:
        self.events.append((self._stamp(), [], rows))
        self.last |= {row: len(self.events) - 1 for row in rows}

    def with_amount(self, amount: int) -> list[tuple[str, int]]:
        return [(row.id, row.version) for row in self.standing() if row.amount == amount]

    def undoable(self, event: int) -> list[tuple[str, int]]:
        newest = self._newest(None)
        rows = self.events[event][2]
        return [row for row in rows if self.last[row] == event and newest[row[0]][0].version == row[1]]

    def standing(self, end: float | None = None) -> list[Row]:
        """The rows that stand, by what came before the watermark was at `end`."""
        return [row for row, is_gone in self._newest(end).values() if not is_gone]

    def results(self, closed: float, *, first: bool) -> list[Result]:
        ends = {row.seconds // SIZE * SIZE + SIZE for _, rows, _ in self.events for row in rows}
        found = []
        for end in sorted(each for each in ends if each <= closed):
            by_country: dict[str, list[int]] = defaultdict(list)
            for row in self.standing(end if first else None):
                if row.seconds // SIZE * SIZE + SIZE == end:
                    by_country[row.country].append(row.amount)
            found += [(name, int(end - SIZE), len(of), sum(of), max(of)) for name, of in by_country.items()]
        return sorted(found)

    def _newest(self, end: float | None) -> dict[str, tuple[Row, bool]]:
        newest: dict[str, tuple[Row, bool]] = {}
        for stamp, rows, turned in self.events:
            if end is not None and stamp is not None and stamp >= end:
                break
            for row in rows:
                if row.id not in newest or row.version > newest[row.id][0].version:
                    newest[row.id] = (row, False)
            for id, version in turned:
                row, is_gone = newest[id]
                assert row.version == version
                newest[id] = (row, not is_gone)
        return newest

    def _stamp(self) -> float | None:
        return None if self.greatest is None else self.greatest - DELAY


def published(rows: Any) -> list[Result]:
    chosen = rows.selectExpr("country", "unix_seconds(window_start)", "rows", "paid", "most").collect()
    return sorted((row[0], row[1] - int(T0.timestamp()), *row[2:]) for row in chosen)


def drawn(chance: random.Random, until: float, number: int, *, keyed: bool) -> list[Row]:
    rows = []
    for place in range(chance.randint(2, 6)):
        seconds = max(0.0, until - chance.choice((0, 1, 30, 90)))
        id, version = (chance.choice("abcd"), chance.randint(1, 9)) if keyed else (f"{number}-{place}", 1)
        rows.append(Row(id, version, seconds, chance.choice(("DE", "FR")), chance.randint(1, 3)))
    return rows


@pytest.mark.long
@pytest.mark.parametrize("stream", [READINGS, ORDERS], ids=["readings", "orders"])
@pytest.mark.parametrize("seed", range(3))
def test_results_are_of_the_rows_that_stand_whoever_takes_back_what(
    spark: SparkSession, lake: Lake, stream: Stream, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, oracle, ids = draws(f"retractions {stream.name} {seed}"), Oracle(), dict[int, int]()
    aggregates = {"rows": agg.count(), "paid": agg.sum("amount"), "most": agg.maximum("amount")}
    view = Windowed("minutes", stream, Tumbling(f"{SIZE} seconds"), aggregates, by=("country",))
    pipeline, until = Pipeline(stream, (view,)), 0.0

    def turn(chosen: RowChoice, rows: list[tuple[str, int]]) -> None:
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.5:
                killed_at(chance.randint(1, 4), patched)
            retract(spark, lake, pipeline, stream, chosen, "wrong", "ada", lambda: NOW)
        # Whatever was killed, to say it once more takes back what is left, which is all or nothing.
        retract(spark, lake, pipeline, stream, chosen, "wrong", "ada", lambda: NOW + timedelta(seconds=1))
        if rows:
            oracle.turned(rows)
            # The call that was not killed is the later one by its clock, so ids alone tell which came last.
            ids[len(oracle.events) - 1] = max(each.id for each in retractions(lake, pipeline))
        assert len(retractions(lake, pipeline)) == len(ids)

    for number in range(4):
        until += chance.choice((30, 50, 100))
        rows = drawn(chance, until, number, keyed=bool(stream.key))
        oracle.came(rows)
        run(spark, lake, pipeline, [row.payload() for row in rows])
        amount = chance.randint(1, 3)
        turn(RowChoice(f"amount = {amount}"), oracle.with_amount(amount))
        if ids and chance.random() < 0.7:
            event = chance.choice(list(ids))
            turn(RowChoice(undoes=ids[event]), oracle.undoable(event))
    end = Row("end", 1, until + 1000, "XX", 9)
    oracle.came([end])
    run(spark, lake, pipeline, [end.payload()])
    closed = end.seconds - DELAY
    assert published(runtime_of(view, lake).readable["first"](spark)) == oracle.results(closed, first=True)
    correct(spark, lake, view, lambda: NOW)
    assert published(read_current(spark, lake, view)) == oracle.results(closed, first=False)
    assert [finding for finding in audit(spark, lake, pipeline) if not finding.holds] == []

"""Laws of sessions over rows that are updated and deleted: they shrink, fall apart and vanish, whatever was cut where.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress

import pytest
from pyspark.sql import SparkSession

from streaming import Lake, Pipeline, SessionWindow, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.operators.runtime import runtime_of
from tests.laws.standing import by_own_time, sessions, side_of
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import ORDERS, Revision, came, deleted, row
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct

GAP, MIDNIGHT = 30, 86_400
AGGREGATES = {"rows": agg.count(), "total": agg.sum("amount"), "most": agg.maximum("amount")}
VISITS = Windowed("visits", ORDERS, SessionWindow(f"{GAP} seconds"), AGGREGATES, by=("country",))
PIPELINE = Pipeline(ORDERS, (VISITS,))
Session = tuple[str, float, float, int, int, int]
"""Country, start and end in seconds after T0, then what is computed."""


def drawn(chance: random.Random, until: float, versions: dict[str, int]) -> list[Revision]:
    batch = []
    for _ in range(chance.randint(1, 6)):
        key, draw = chance.choice("abcdefg"), chance.random()
        versions[key] += 1
        if draw < 0.25:
            batch.append(Revision(key, versions[key], None, None, None, True))
        else:
            seconds = until - chance.choice((0, 1, 15, 30, 31, 60, 100))
            batch.append(Revision(key, versions[key], seconds, chance.choice(("DE", "DE", "FR")), chance.randint(1, 4)))
    return batch


def expected(rows: Iterable[Revision], closed: float) -> list[Session]:
    """The sessions of the rows of each country, once the clock is past the end."""
    by_country: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for each in rows:
        assert each.country is not None and each.amount is not None
        by_country[each.country].append((each.time, each.amount))
    return sorted(
        (country, start, end, len(amounts), sum(amounts), max(amounts))
        for country, of in by_country.items()
        for start, end, amounts in sessions(of, GAP)
        if end < closed
    )


def published(spark: SparkSession, lake: Lake, what: str) -> list[Session]:
    bounds = ("unix_micros(window_start)", "unix_micros(window_end)")
    rows = runtime_of(VISITS, lake).readable[what](spark).selectExpr("country", *bounds, *AGGREGATES).collect()
    origin = int(T0.timestamp() * 1_000_000)
    return sorted((row[0], (row[1] - origin) / 1e6, (row[2] - origin) / 1e6, *row[3:]) for row in rows)


def check(spark: SparkSession, lake: Lake) -> None:
    side = side_of(came(spark, lake, ORDERS))
    assert side.clock is not None
    assert published(spark, lake, "current") == expected(side.standing(), side.clock)
    assert published(spark, lake, "first") == expected(side.standing(by_own_time), side.clock)
    assert broken(spark, lake) == []


def broken(spark: SparkSession, lake: Lake) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_sessions_are_of_the_rows_that_stand_whatever_is_cut_killed_or_corrected(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"sessions {seed}")
    # Some begin before midnight and end after it.
    until, versions = MIDNIGHT - chance.choice((40, 150, 300)), defaultdict[str, int](int)
    for _ in range(6):
        until += chance.choice((10, 40, 60))
        rows = [each.payload() for each in drawn(chance, until, versions)]
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.3:
                killed_at(chance.randint(1, 6), patched)
            run(spark, lake, PIPELINE, rows)
            if chance.random() < 0.5:
                correct(spark, lake, VISITS, lambda: NOW)
    run(spark, lake, PIPELINE)
    correct(spark, lake, VISITS, lambda: NOW)
    # Some sessions are still open here, and some are in time that was corrected.
    check(spark, lake)
    run(spark, lake, PIPELINE, [Revision("end", 1, until + 1000, "XX", 1).payload()])
    correct(spark, lake, VISITS, lambda: NOW)
    check(spark, lake)
    assert runtime_of(VISITS, lake).plan(spark) == []


def test_a_session_falls_apart_when_the_row_that_held_it_together_is_taken_back(
    spark: SparkSession, lake: Lake
) -> None:
    """
    00:00 a · 00:25 b · 00:50 c   are one session, closed by z at 05:00
    b is deleted                  leaves two
    d at 00:55, late, a deleted   d joins the second, and the first is gone
    """
    run(spark, lake, PIPELINE, [row("a", 1, 0), row("b", 1, 25, 2), row("c", 1, 50, 4)], [row("z", 1, 300)])
    assert published(spark, lake, "current") == [("DE", 0, 80, 3, 7, 4)]
    run(spark, lake, PIPELINE, [deleted("b", 2)])
    correct(spark, lake, VISITS, lambda: NOW)
    assert published(spark, lake, "current") == [("DE", 0, 30, 1, 1, 1), ("DE", 50, 80, 1, 4, 4)]
    run(spark, lake, PIPELINE, [row("d", 1, 55, 8), deleted("a", 2)])
    correct(spark, lake, VISITS, lambda: NOW)
    assert published(spark, lake, "current") == [("DE", 50, 85, 2, 12, 8)]
    assert published(spark, lake, "first") == [("DE", 0, 80, 3, 7, 4)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_row_that_is_taken_back_in_time_was_never_in_a_session(spark: SparkSession, lake: Lake) -> None:
    """00:00 a, 00:25 b in one batch, b deleted in the next, while the session is open."""
    run(spark, lake, PIPELINE, [row("a", 1, 0), row("b", 1, 5, 2)], [deleted("b", 2)], [row("z", 1, 300)])
    assert published(spark, lake, "first") == [("DE", 0, 30, 1, 1, 1)] == published(spark, lake, "current")
    assert broken(spark, lake) == []

"""Laws of sessions over rows that are updated and deleted: they shrink, fall apart and vanish, whatever was cut where.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, SessionWindow, Stream, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.log import read_log
from streaming.operators.runtime import runtime_of
from tests.support.instants import NOW, T0, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct

DELAY, GAP, MIDNIGHT = 10, 30, 86_400
ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, country string, amount bigint, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
AGGREGATES = {"rows": agg.count(), "total": agg.sum("amount"), "most": agg.maximum("amount")}
VISITS = Windowed("visits", ORDERS, SessionWindow(f"{GAP} seconds"), AGGREGATES, by=("country",))
PIPELINE = Pipeline(ORDERS, (VISITS,))
Session = tuple[str, float, float, int, int, int]
"""Country, start and end in seconds after T0, then what is computed."""


@dataclass(frozen=True)
class Revision:
    id: str
    version: int
    seconds: float | None
    country: str | None
    amount: int | None
    gone: bool = False

    def payload(self) -> dict[str, Any]:
        return {**vars(self), "at": None if self.seconds is None else at(self.seconds).isoformat()}


Batches = list[list[Revision]]


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


def came(spark: SparkSession, lake: Lake) -> Batches:
    """The revisions in their log, as it has cut them into batches; a kill may have put two of those sent into one."""
    batches: dict[int, list[Revision]] = defaultdict(list)
    origin = int(T0.timestamp() * 1_000_000)
    columns = ("_batch", "id", "version", f"(unix_micros(at) - {origin}) / 1e6 as seconds", "country", "amount", "gone")
    log = read_log(spark, lake, ORDERS.revisions).where("_rejected is null and _origin is not null")
    for row in log.orderBy("_batch", "_origin").selectExpr(*columns).collect():
        batches[row["_batch"]].append(Revision(*row[1:]))
    return [batches[number] for number in range(max(batches) + 1)]


def sessions(rows: Iterable[Revision], closed: float) -> list[Session]:
    """Rows of a country that are at most a gap apart, once the clock is past the end."""
    by_country: dict[str, list[Revision]] = defaultdict(list)
    for row in rows:
        assert row.country is not None
        by_country[row.country].append(row)
    found = []
    for country, of in by_country.items():
        runs: list[list[Revision]] = []
        for row in sorted(of, key=lambda row: row.seconds or 0.0):
            if runs and (row.seconds or 0.0) <= (runs[-1][-1].seconds or 0.0) + GAP:
                runs[-1].append(row)
            else:
                runs.append([row])
        for each in runs:
            start, end = each[0].seconds or 0.0, (each[-1].seconds or 0.0) + GAP
            amounts = [row.amount or 0 for row in each]
            if end < closed:
                found.append((country, start, end, len(amounts), sum(amounts), max(amounts)))
    return sorted(found)


def told(batches: Batches) -> tuple[list[Revision], list[Revision], float]:
    """Rows that stand, by all revisions and by what was added and taken back in time; and where the clock is."""
    newest: dict[str, Revision] = {}
    in_time: set[Revision] = set()
    greatest: float | None = None
    for batch in batches:
        stamp = None if greatest is None else greatest - DELAY
        before = dict(newest)
        for each in batch:
            if each.id not in newest or each.version > newest[each.id].version:
                newest[each.id] = each
        for key, row in newest.items():
            was = before.get(key)
            if was == row:
                continue
            if was is not None and not was.gone and (stamp is None or (was.seconds or 0.0) >= stamp):
                in_time.discard(was)
            if not row.gone and (stamp is None or (row.seconds or 0.0) >= stamp):
                in_time.add(row)
        times = [each.seconds for each in batch if each.seconds is not None]
        greatest = max([*times, *([] if greatest is None else [greatest])], default=None)
    assert greatest is not None
    return [row for row in newest.values() if not row.gone], list(in_time), greatest - DELAY


def published(spark: SparkSession, lake: Lake, what: str) -> list[Session]:
    bounds = ("unix_micros(window_start)", "unix_micros(window_end)")
    rows = runtime_of(VISITS, lake).readable[what](spark).selectExpr("country", *bounds, *AGGREGATES).collect()
    origin = int(T0.timestamp() * 1_000_000)
    return sorted((row[0], (row[1] - origin) / 1e6, (row[2] - origin) / 1e6, *row[3:]) for row in rows)


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
    standing, in_time, clock = told(came(spark, lake))
    assert published(spark, lake, "current") == sessions(standing, clock)
    assert published(spark, lake, "first") == sessions(in_time, clock)
    assert broken(spark, lake) == []
    run(spark, lake, PIPELINE, [Revision("end", 1, until + 1000, "XX", 1).payload()])
    correct(spark, lake, VISITS, lambda: NOW)
    standing, in_time, clock = told(came(spark, lake))
    assert published(spark, lake, "current") == sessions(standing, clock)
    assert published(spark, lake, "first") == sessions(in_time, clock)
    assert runtime_of(VISITS, lake).plan(spark) == []
    assert broken(spark, lake) == []


def row(id: str, version: int, seconds: float, amount: int = 1, *, gone: bool = False) -> dict[str, Any]:
    return Revision(id, version, None if gone else seconds, None if gone else "DE", amount, gone).payload()


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
    run(spark, lake, PIPELINE, [row("b", 2, 0, gone=True)])
    correct(spark, lake, VISITS, lambda: NOW)
    assert published(spark, lake, "current") == [("DE", 0, 30, 1, 1, 1), ("DE", 50, 80, 1, 4, 4)]
    run(spark, lake, PIPELINE, [row("d", 1, 55, 8), row("a", 2, 0, gone=True)])
    correct(spark, lake, VISITS, lambda: NOW)
    assert published(spark, lake, "current") == [("DE", 50, 85, 2, 12, 8)]
    assert published(spark, lake, "first") == [("DE", 0, 80, 3, 7, 4)]
    assert broken(spark, lake) == []


@pytest.mark.long
def test_a_row_that_is_taken_back_in_time_was_never_in_a_session(spark: SparkSession, lake: Lake) -> None:
    """00:00 a, 00:25 b in one batch, b deleted in the next, while the session is open."""
    run(spark, lake, PIPELINE, [row("a", 1, 0), row("b", 1, 5, 2)], [row("b", 2, 0, gone=True)], [row("z", 1, 300)])
    assert published(spark, lake, "first") == [("DE", 0, 30, 1, 1, 1)] == published(spark, lake, "current")
    assert broken(spark, lake) == []

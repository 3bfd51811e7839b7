"""Laws of keyed functions over rows that are updated and deleted, whatever was cut, killed or corrected where.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Files, Keyed, Lake, Pipeline, micros
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.operators.runtime import runtime_of
from tests.laws.standing import by_own_time, side_of
from tests.laws.test_session_laws import GAP, MIDNIGHT, drawn
from tests.support import orders
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import Batches, Revision, came
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct, land_all

ORDERS = replace(orders.ORDERS, source=Files("landing/orders", files_per_batch=1))
SOON = 12
"""Seconds after a row in which a timer is due, unless another row comes before it."""


def on_order(key: Any, row: Any) -> None:
    """Tell the amounts so far, and forget them after one of 4."""
    key.trail = f"{key.trail or ''}{row.amount}"
    key.emit(trail=key.trail)
    key.timer("soon", key.at + micros(f"{SOON} seconds"))
    if row.amount == 4:
        key.clear()


def on_soon(key: Any) -> None:
    key.trail = f"{key.trail or ''}s"
    key.emit("pauses", trail=key.trail)


def on_change(key: Any, row: Any) -> None:
    key.total = (key.total or 0) + key.change * row.amount
    key.emit(change=key.change, amount=row.amount, total=key.total)


TRAILS = Keyed(
    "trails",
    ORDERS,
    ("country",),
    "trail string",
    "trail string",
    on_order,
    timers={"soon": on_soon},
    sides={"pauses": "trail string"},
    order="event",
    idle=f"{GAP} seconds",
)
BOOK = Keyed(
    "book",
    ORDERS,
    ("country",),
    "total bigint",
    "change int, amount bigint, total bigint",
    on_change,
    retractions=True,
)
PIPELINE = Pipeline(ORDERS, (TRAILS, BOOK))
Told = tuple[str, float, str]
"""Country, seconds after T0, and what was emitted."""


def trails(rows: Iterable[Revision], places: dict[Revision, int], clock: float) -> dict[str, list[Told]]:
    """What is emitted for these rows by the time of the clock, to each output; `places` order rows of one time."""
    by_country: dict[str, list[Revision]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row.time, places[row])):
        if row.time < clock:
            by_country[row.country or ""].append(row)
    results: list[Told] = []
    pauses: list[Told] = []
    for country, of in by_country.items():
        trail, due, forgotten = "", clock + 1, 0.0
        for now, amount in [*((row.time, row.amount) for row in of), (clock, None)]:
            if due <= now:
                trail += "s"
                pauses.append((country, due, trail))
                due = clock + 1
            if amount is None:
                break
            if now >= forgotten:
                trail = ""
            trail += str(amount)
            results.append((country, now, trail))
            due, forgotten = now + SOON, now + GAP
            if amount == 4:
                trail, due = "", clock + 1
    return {"": sorted(results), "pauses": sorted(pauses)}


def book(batches: Batches) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """What was added and taken back, in the order of the log with the total after it; and the totals in the end."""
    standing: dict[str, Revision] = {}
    totals: dict[str, int] = defaultdict(int)
    entries = []
    for batch in batches.values():
        before, caused = dict(standing), {}
        for place, each in enumerate(batch):
            if each.id not in standing or each.version > standing[each.id].version:
                standing[each.id] = each
                caused[each.id] = place
        for key in sorted(caused, key=lambda key: caused[key]):
            for sign, row in ((-1, before.get(key)), (1, standing[key])):
                if row is not None and not row.gone:
                    assert row.country is not None and row.seconds is not None and row.amount is not None
                    totals[row.country] += sign * row.amount
                    entries.append((row.country, row.seconds, sign, row.amount, totals[row.country]))
    return sorted(entries), dict(totals)


def read(spark: SparkSession, lake: Lake, keyed: Keyed, what: str, *columns: str) -> list[tuple[Any, ...]]:
    origin = int(T0.timestamp() * 1_000_000)
    place = ("country", f"(unix_micros(_at) - {origin}) / 1e6")
    rows = runtime_of(keyed, lake).readable[what](spark).selectExpr(*place, *columns).collect()
    return sorted(map(tuple, rows))


def check(spark: SparkSession, lake: Lake) -> None:
    # In the order of their source, in which a function has its rows.
    batches = came(spark, lake, ORDERS, "_origin.modified", "_origin.path", "_origin.position")
    places = {row: place for place, row in enumerate(row for batch in batches.values() for row in batch)}
    side = side_of(batches)
    assert side.clock is not None
    current = {to: read(spark, lake, TRAILS, to or "current", "trail") for to in ("", "pauses")}
    assert current == trails(side.standing(), places, side.clock)
    assert read(spark, lake, TRAILS, "first", "trail") == trails(side.standing(by_own_time), places, side.clock)[""]
    entries, totals = book(batches)
    assert read(spark, lake, BOOK, "current", "change", "amount", "total") == entries
    state = runtime_of(BOOK, lake).readable["state"](spark).select("country", "total").collect()
    assert {row[0]: row[1] for row in state} == totals
    assert broken(spark, lake) == []


def broken(spark: SparkSession, lake: Lake) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10))
def test_keyed_functions_are_of_the_rows_that_stand_whatever_is_cut_killed_or_corrected(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = draws(f"keyed signed {seed}")
    # Some sessions begin before midnight and end after it.
    until, versions = MIDNIGHT - chance.choice((40, 150, 300)), defaultdict[str, int](int)
    for _ in range(5):
        for _ in range(chance.randint(1, 3)):
            until += chance.choice((10, 40, 60))
            # Each is a batch, and a step follows all of them.
            land_all(lake, ORDERS, [each.payload() for each in drawn(chance, until, versions)])
        with monkeypatch.context() as patched, suppress(Killed, StreamingError):
            if chance.random() < 0.4:
                killed_at(chance.randint(1, 9), patched)
            run(spark, lake, PIPELINE)
            due = [each.day for each in runtime_of(TRAILS, lake).plan(spark)]
            days = chance.sample(due, chance.randint(0, len(due)))
            for day in days:
                runtime_of(TRAILS, lake).correct(spark, [day], lambda: NOW)
    run(spark, lake, PIPELINE)
    correct(spark, lake, TRAILS, lambda: NOW)
    # Some sessions go on here.
    check(spark, lake)
    run(spark, lake, PIPELINE, [Revision("end", 1, until + 1000, "XX", 1).payload()])
    correct(spark, lake, TRAILS, lambda: NOW)
    assert runtime_of(TRAILS, lake).plan(spark) == []
    check(spark, lake)

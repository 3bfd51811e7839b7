"""Laws of operators that sign their rows: what is current is of the rows that stand, whatever was cut or killed where.

The oracle is plain Python over the revisions as they were sent, and shares nothing with the engine.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    Derived,
    Joined,
    Json,
    Lake,
    Pipeline,
    Selected,
    Stream,
    Table,
    Tumbling,
    Windowed,
    agg,
)
from streaming.audit.laws import audit
from streaming.base import StreamingError
from streaming.declare import Operator
from streaming.operators.runtime import runtime_of
from tests.laws.standing import side_of
from tests.support.instants import NOW, T0
from tests.support.killed import Killed, killed_at
from tests.support.orders import ORDERS, PAYMENTS, Batches, Revision, came
from tests.support.runs import run
from tests.support.seeds import draws
from tidemark.testing import correct, land_all

SIZE, BEFORE, AFTER = 60, 20, 40
"""Seconds of a window, and how much earlier and later the right row of a pair may be."""
LARGE = Selected("large", ORDERS, select={"country": "country", "amount": "amount * 2"}, where="amount >= 2")
PAID = Joined(
    "paid",
    ORDERS,
    PAYMENTS,
    on=("country",),
    between=(f"-{BEFORE} seconds", f"{AFTER} seconds"),
    select={"country": "country", "amount": "left_amount * 10 + right_amount"},
    where="left_amount <> right_amount",
)
SHOP = Pipeline(name="shop", streams=(ORDERS, PAYMENTS), operators=(LARGE, PAID))
Row = tuple[str, float, int]
"""Country, seconds after T0, amount."""


def follower(of: Operator) -> Pipeline:
    stream = Stream(
        name=f"{of.name}_rows",
        source=Table(of, what="current"),
        format=Json("country string, amount bigint"),
        derived={"at": "_origin.at"},
        event_time="at",
        clock=Derived(max_ahead="30 days"),
    )
    aggregates = {"rows": agg.count(), "total": agg.sum("amount"), "most": agg.maximum("amount")}
    view = Windowed(f"{of.name}_windows", stream, Tumbling(f"{SIZE} seconds"), aggregates, by=("country",))
    return Pipeline(stream, (view,))


FOLLOWERS = (follower(LARGE), follower(PAID))


def drawn(chance: random.Random, until: float, versions: dict[str, int]) -> list[Revision]:
    """Revisions of a few keys: updates, moves, deletes, keys that come again, old ones that come late."""
    batch = []
    for _ in range(chance.randint(0, 6)):
        key, draw = chance.choice("abcd"), chance.random()
        versions[key] += chance.choice((1, 1, 2)) if draw < 0.85 else -1
        if draw < 0.2:
            batch.append(Revision(key, versions[key], None, None, None, True))
        else:
            seconds = max(0.0, until - chance.choice((0, 1, 20, 30, 90)))
            batch.append(Revision(key, versions[key], seconds, chance.choice(("DE", "FR")), chance.randint(1, 4)))
    return batch


def standing(log: Batches) -> list[Row]:
    rows = []
    for each in side_of(log).standing():
        assert each.country is not None and each.amount is not None
        rows.append((each.country, each.time, each.amount))
    return rows


def selected(orders: Sequence[Row]) -> list[Row]:
    return sorted((country, seconds, amount * 2) for country, seconds, amount in orders if amount >= 2)


def joined(orders: Sequence[Row], payments: Sequence[Row]) -> list[Row]:
    return sorted(
        (country, max(seconds, its), amount * 10 + paid)
        for country, seconds, amount in orders
        for other, its, paid in payments
        if country == other and -BEFORE <= its - seconds <= AFTER and amount != paid
    )


def windows(rows: Sequence[Row], closed: float) -> list[tuple[str, int, int, int, int]]:
    groups: Mapping[tuple[str, int], list[int]] = defaultdict(list)
    for country, seconds, amount in rows:
        groups[country, int(seconds // SIZE * SIZE)].append(amount)
    return sorted(
        (country, start, len(of), sum(of), max(of)) for (country, start), of in groups.items() if start + SIZE <= closed
    )


def current(spark: SparkSession, lake: Lake, operator: Operator) -> list[Row]:
    rows = runtime_of(operator, lake).readable["current"](spark).selectExpr("country", "unix_micros(_at)", "amount")
    origin = int(T0.timestamp() * 1_000_000)
    return sorted((row[0], (row[1] - origin) / 1e6, row[2]) for row in rows.collect())


def published(spark: SparkSession, lake: Lake, view: Windowed) -> list[tuple[Any, ...]]:
    columns = ("country", "unix_seconds(window_start)", "rows", "total", "most")
    rows = runtime_of(view, lake).readable["current"](spark).selectExpr(*columns).collect()
    return sorted((row[0], row[1] - int(T0.timestamp()), *row[2:]) for row in rows)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_what_is_current_is_of_the_rows_that_stand_whatever_is_cut_or_killed(
    spark: SparkSession, lake: Lake, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, until = draws(f"signed {seed}"), 0.0
    versions = {stream.name: defaultdict[str, int](int) for stream in SHOP.streams}
    for _ in range(5):
        until += chance.choice((20, 50, 100))
        for stream in SHOP.streams:
            if rows := drawn(chance, until, versions[stream.name]):
                land_all(lake, stream, [row.payload() for row in rows])
        pipelines = [SHOP, *(each for each in FOLLOWERS if chance.random() < 0.4)]
        for pipeline in pipelines if chance.random() < 0.8 else []:
            # What was landed before a kill is still there, and comes with the next run.
            with monkeypatch.context() as patched, suppress(Killed, StreamingError):
                if chance.random() < 0.5:
                    killed_at(chance.randint(1, 9), patched)
                run(spark, lake, pipeline)
    # Closes all windows before it, and is in one that stays open.
    for stream in SHOP.streams:
        land_all(lake, stream, [Revision("end", 1, until + 1000, "XX", 1 if stream is ORDERS else 2).payload()])
    run(spark, lake, SHOP)
    orders, payments = (standing(came(spark, lake, stream)) for stream in SHOP.streams)
    assert current(spark, lake, LARGE) == selected(orders)
    assert current(spark, lake, PAID) == joined(orders, payments)
    closed = until + 1000 - 10
    for pipeline, stand in zip(FOLLOWERS, (selected(orders), joined(orders, payments)), strict=True):
        run(spark, lake, pipeline)
        (view,) = pipeline.views
        correct(spark, lake, view, lambda: NOW)
        assert published(spark, lake, view) == windows(stand, closed), view.name
    findings = [finding for pipeline in (SHOP, *FOLLOWERS) for finding in audit(spark, lake, pipeline)]
    assert [finding for finding in findings if not finding.holds] == []
    assert {finding.law for finding in findings} >= {"net", "published", "cuts"}


def test_the_oracle_knows_which_rows_meet() -> None:
    a, b = Revision("a", 1, 0, "DE", 1), Revision("b", 1, 50, "FR", 3)
    orders = standing({0: [a, Revision("a", 2, 50, "DE", 3), b]})
    assert orders == [("DE", 50, 3), ("FR", 50, 3)]
    assert joined(orders, [("DE", 30, 2), ("DE", 29, 2), ("DE", 90, 3), ("FR", 90, 1)]) == [
        ("DE", 50, 32),
        ("FR", 90, 31),
    ]

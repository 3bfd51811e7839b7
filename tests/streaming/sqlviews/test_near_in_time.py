"""Joins of rows that are near in time: of the other side only files are read that may have such rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, View
from streaming.audit.laws import audit
from streaming.declare import CURRENT
from streaming.operators.runtime import runtime_of
from streaming.sqlviews import partners, steps
from streaming.tables import delta
from tests.support.instants import T0
from tests.support.runs import run
from tidemark.testing import land_all

CLOCK = BoundedOutOfOrderness("10 seconds", max_ahead="30 days")
ORDERS, PAYMENTS = (
    Stream(
        name=name,
        source=Files(f"landing/{name}"),
        format=Json(f"{column} bigint, client bigint, at timestamp"),
        event_time="at",
        clock=CLOCK,
    )
    for name, column in (("orders", "id"), ("payments", "paid"))
)
NEAR = "p.client = o.client and p.at between o.at and o.at + interval 1 hour"
INNER, LEFT = (
    View(
        name,
        f"select o.at, o.id, p.paid from orders o {join} payments p on {NEAR}",
        of=(ORDERS, PAYMENTS),
        key=("at", "id"),
    )
    for name, join in (("paid", "join"), ("maybe_paid", "left join"))
)
PIPELINE = Pipeline(name="near", streams=(ORDERS, PAYMENTS), operators=(INNER, LEFT))


class Row(NamedTuple):
    number: int
    client: int
    at: datetime


def lands(lake: Lake, orders: Sequence[Row] = (), payments: Sequence[Row] = ()) -> None:
    for stream, name, rows in ((ORDERS, "id", orders), (PAYMENTS, "paid", payments)):
        if rows:
            values = [{name: row.number, "client": row.client, "at": row.at.isoformat()} for row in rows]
            land_all(lake, stream, values)


def pairs(orders: Iterable[Row], payments: Sequence[Row]) -> Iterator[tuple[Row, Row]]:
    for order in orders:
        for payment in payments:
            is_near = order.at <= payment.at <= order.at + timedelta(hours=1)
            if order.client == payment.client and is_near:
                yield order, payment


def check(spark: SparkSession, lake: Lake, orders: Sequence[Row], payments: Sequence[Row]) -> None:
    met = [(order.at.replace(tzinfo=None), order.number, payment.number) for order, payment in pairs(orders, payments)]
    paid = {number for _, number, _ in met}
    alone = [(order.at.replace(tzinfo=None), order.number, None) for order in orders if order.number not in paid]
    expected: dict[View, list[tuple[Any, ...]]] = {INNER: [*met], LEFT: [*met, *alone]}
    for view, rows in expected.items():
        current = delta.read(spark, lake.table(view, CURRENT)).select(*view.columns)
        assert Counter(map(tuple, current.collect())) == Counter(rows), view.name


@contextmanager
def without(lake: Lake, day: date) -> Iterator[None]:
    """The files of a day of both logs are away meanwhile."""
    folders = [folder for each in (ORDERS, PAYMENTS) for folder in Path(lake.log(each)).glob(f"**/_day={day}")]
    assert len(folders) == 2
    for folder in folders:
        folder.rename(folder.with_name("away"))
    yield
    for folder in folders:
        folder.with_name("away").rename(folder)


MICROSECOND = timedelta(microseconds=1)
LONG_AGO, EVENING = T0 - timedelta(minutes=30), T0 + timedelta(hours=47, minutes=30)
STEPS: list[tuple[list[Row], list[Row]]] = [
    ([Row(1, 1, LONG_AGO), Row(2, 2, LONG_AGO)], [Row(1, 1, LONG_AGO + timedelta(minutes=2))]),
    ([Row(3, 1, EVENING + MICROSECOND)], []),
    ([], [Row(2, 1, EVENING + timedelta(hours=1) + n * MICROSECOND) for n in (1, 2)]),
    ([Row(4, 1, EVENING + 2 * MICROSECOND)], [Row(3, 1, EVENING + 2 * MICROSECOND)]),
]


@pytest.mark.parametrize("most", [steps.MOST_IN_MEMORY, 0])
def test_only_files_are_read_that_may_have_rows_near_in_time(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """
    day 0, 23:30   an order of client 1, and one that nobody pays; two minutes later the first is paid
    day 2, 23:30   an order of client 1; from now on no file of day 0 is there
    day 3, 00:30   it is paid an hour later, to the microsecond, and again a microsecond after that
    day 2, 23:30   another order comes late, together with a payment
    """
    for module in (steps, partners):
        monkeypatch.setattr(module, "MOST_IN_MEMORY", most)
    orders, payments = list[Row](), list[Row]()
    for number, (more_orders, more_payments) in enumerate(STEPS):
        lands(lake, more_orders, more_payments)
        orders, payments = [*orders, *more_orders], [*payments, *more_payments]
        # Of more rows than may be in memory nobody asks for their times.
        with without(lake, LONG_AGO.date()) if number and most else nullcontext():
            run(spark, lake, PIPELINE)
        check(spark, lake, orders, payments)
    told = runtime_of(LEFT, lake).explain(spark)["reads"]
    assert told == "only files near in time to the rows they are joined with, of payments by at"
    assert [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds] == []

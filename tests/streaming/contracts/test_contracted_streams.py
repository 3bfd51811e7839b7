"""A stream of a contract at work: hostile orders against what plain Python says of each, and the gate of its log."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from quality import run_suite
from quality.find import log_suite
from streaming import BoundedOutOfOrderness, Files, Lake, Pipeline, Stream, Tumbling, Windowed, agg, read_log
from tests.support.runs import run

FILE = Path(__file__).parents[2] / "support" / "contracts" / "orders.odcs.yaml"
TOKEN = "00000000-0000-4000-8000-00000000000"
GOOD: dict[str, Any] = {
    "order_id": "A-1",
    "placed_at": "2026-01-01T00:00:00Z",
    "country": "DE",
    "amount": 10,
    "token": f"{TOKEN}1",
    "customer": {"email": "a@b.example", "vip": True},
    "lines": [{"sku": "x", "pieces": 2}],
    "attributes": {"channel": "web"},
}
HOSTILE: list[dict[str, Any]] = [
    {"order_id": "a-1"},
    {"order_id": None},
    {"placed_at": None},
    {"country": "XX"},
    {"country": None},
    {"amount": -1},
    {"amount": 0},
    {"amount": 1.005},
    {"amount": None},
    {"token": "no uuid"},
    {"token": f"{TOKEN}1"},
    {"customer": {"vip": True}},
    {"customer": {"email": "x" * 101}},
    {"customer": None},
    {"lines": [{"pieces": 2}]},
    {"lines": []},
    {"attributes": {"channel": None}},
]


def breaks(order: dict[str, Any]) -> bool:
    """True of an order that the contract refuses, by its text and not by the declaration."""
    customer, country, amount = order["customer"], order["country"], order["amount"]
    return (
        re.fullmatch("[A-Z]{1,3}-[0-9]+", order["order_id"] or "") is None
        or order["placed_at"] is None
        or country not in (None, "DE", "AT", "CH")
        or (amount is not None and (amount < 0 or Decimal(str(amount)).as_tuple().exponent < -2))  # type: ignore[operator]
        or len(order["token"] or TOKEN + "1") != 36
        or (customer is not None and (customer.get("email") is None or len(customer["email"]) > 100))
        or any("sku" not in line for line in order["lines"])
    )


@pytest.fixture(scope="module")
def orders() -> Stream:
    return Stream.of_contract(FILE, source=Files("landing/orders"), clock=BoundedOutOfOrderness("1 hour"))


def test_orders_are_rejected_as_the_contract_says_and_its_checks_judge_those_that_are_not(
    spark: SparkSession, lake: Lake, orders: Stream
) -> None:
    rows = [GOOD | {"order_id": f"A-{n}", "token": f"{TOKEN}{n}"} | hostile for n, hostile in enumerate(HOSTILE[:8])]
    rows += [GOOD | {"order_id": f"B-{n}", "token": f"{TOKEN}{n}"} | hostile for n, hostile in enumerate(HOSTILE[8:])]
    takings = Windowed("takings", orders, Tumbling("1 day"), {"sum": agg.sum("amount")}, by=("country",))
    run(spark, lake, Pipeline(orders, (takings,)), rows, end_of_input=True)

    log = read_log(spark, lake, orders).where("_origin is not null")
    valid = {row["order_id"] for row in log.where("_rejected is null").select("order_id").collect()}
    right = [row for row in rows if not breaks(row)]
    assert valid == {row["order_id"] for row in right}
    assert 0 < len(right) < len(rows)

    outcomes = {each.expectation.name: each.outcome for each in run_suite(lambda: log, log_suite(orders))}
    tokens = [row["token"] for row in right if row["token"] is not None]
    amounts = [Decimal(str(row["amount"])) for row in right if row["amount"] is not None]
    no_country = sum(row["country"] is None for row in right) / len(right)
    expected = {
        "unique_order_id": len({row["order_id"] for row in right}) == len(right),
        "unique_token": len({*tokens}) == len(tokens),
        "country_null_values": no_country < 0.05,
        "row_count": len(right) >= 3,
        "mean_amount": 1 <= sum(amounts) / len(amounts) <= 1000,
    }
    assert {name: outcomes[name] == "passed" for name in expected} == expected
    # Both sides of the bounds are there.
    assert {*expected.values()} == {True, False}
    assert "could_not_run" not in outcomes.values()

    warned = log.where("_rejected is null and array_contains(_warned, 'free_orders')").select("order_id").collect()
    free = {row["order_id"] for row in right if row["amount"] is not None and Decimal(str(row["amount"])) == 0}
    assert {row["order_id"] for row in warned} == free != set()

"""The library's functions compute as SQL does: all digits of decimals, NaN the greatest number and equal to itself."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Keyed,
    RepeatTrigger,
    Stream,
    rolling,
    top,
    triggered_window,
)
from streaming.keyed.state_table import spark_schema
from tidemark.testing import play

NAN = float("nan")
LARGE, SMALL = Decimal("1234567890122.000000000000000001"), Decimal("1.000000000000000001")

numbers = Stream(
    name="numbers",
    source=Files("landing/numbers"),
    format=Json("id string, at timestamp, x double, amount decimal(38, 18)"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds"),
)


def played(keyed: Keyed, *rows: dict[str, Any], steps: list[int] | None = None) -> list[Any]:
    """The values that were emitted, without key and time; each row is a batch of its own."""
    batches = [[{"at": f"2026-03-02T09:00:{second:02}Z", "id": "a", **row}] for second, row in enumerate(rows)]
    return [row[1:] for row in play(keyed, *batches, steps=steps).results]


def test_a_rolling_sum_has_all_digits() -> None:
    total = rolling("total", numbers, {"t": "sum(amount)"})
    assert played(total, {"amount": LARGE}, {"amount": SMALL})[-1] == (Decimal("1234567890123.000000000000000002"),)


def test_extremes_take_nan_for_the_greatest_in_whatever_order_it_comes() -> None:
    extremes = rolling("extremes", numbers, {"lo": "min(x)", "hi": "max(x)", "at_hi": "max_by(*, x)"})
    for xs in ((NAN, 2.0, 3.0), (2.0, NAN, 3.0), (3.0, 2.0, NAN)):
        *_, (lo, hi, at_hi) = played(extremes, *({"x": x} for x in xs))
        assert (lo, repr(hi), repr(at_hi["x"])) == (2.0, "nan", "nan")
    first = played(extremes, {"x": NAN, "amount": 1}, {"x": NAN, "amount": 2})
    assert [row["amount"] for *_, row in first] == [1, 1]


def test_a_ranking_has_nan_first_and_tells_it_once() -> None:
    best = top("best", numbers, n=2, item="id", value="x")
    rows = [{"id": "a", "x": 5.0}, {"id": "b", "x": NAN}, {"id": "b", "x": NAN}, {"id": "c", "x": 9.0}]
    for steps in (None, [3]):
        ranks = played(best, *rows, steps=steps)
        assert repr(ranks) == "[(1, 'a', 5.0), (1, 'b', nan), (2, 'a', 5.0), (2, 'c', 9.0)]"


def test_a_value_repeats_itself_whatever_its_sign_of_zero_or_nan() -> None:
    repeats = triggered_window(
        "repeats", numbers, value="x", function=count, result="n bigint", trigger=RepeatTrigger("1 minute")
    )
    assert played(repeats, {"x": 0.0}, {"x": -0.0}, {"x": NAN}, {"x": float("nan")}) == [(2, 2), (4, 4)]


def count(values: list[Any]) -> dict[str, int]:
    """How many there are."""
    return {"n": len(values)}


def test_a_key_without_a_zone_has_none_in_the_tables() -> None:
    kinds = pa.schema([("opens", pa.timestamp("us")), ("at", pa.timestamp("us", "UTC"))])
    names = [field.dataType.simpleString() for field in spark_schema(kinds, partitioned=True)]
    assert names == ["timestamp_ntz", "timestamp", "date"]

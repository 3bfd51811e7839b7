"""Declarations of window joins and co-groups: what they tell of their results, and what is refused, in words."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streaming import BoundedOutOfOrderness, CoGrouped, Files, Json, SessionWindow, Stream, Tumbling, WindowJoined
from streaming.base.errors import DeclarationError
from streaming.declare.columns import ColumnSpec
from streaming.declare.delivery import Delivery
from streaming.declare.operator import CORRECTIONS
from streaming.declare.two_sided import TwoSided
from streaming.lake.lake import Lake
from streaming.sinks.files import JsonLines
from streaming.sources import unit_table_of

clock = BoundedOutOfOrderness("1 second")
clicks = Stream("clicks", Files("clicks"), Json("visitor string, at timestamp, page string, n bigint"), "at", clock)
orders = Stream("orders", Files("orders"), Json("buyer string, at timestamp, amount double"), "at", clock)
sided = Stream("sided", Files("sided"), Json("left string, at timestamp"), "at", clock)
ON = {"visitor": "buyer"}
HOUR = Tumbling("1 hour")


def nothing(key: Any, start: int, end: int, left: list[Any], right: list[Any]) -> Iterator[dict[str, Any]]:
    yield from ()


bought = WindowJoined("bought", clicks, orders, ON, HOUR, {"after": "right_at - _left_at", "n": "n * 2"})
counted = CoGrouped("counted", clicks, orders, ON, HOUR, "n bigint comment 'How many.'", nothing)


def test_it_is_a_value_whose_description_and_late_policy_change_no_result() -> None:
    for one in (bought, counted):
        assert pickle.loads(pickle.dumps(one)) == one
        assert hash(one) == hash(one.renamed(one.name))
    again = WindowJoined(
        "bought", clicks, orders, ON, Tumbling("60 minutes"), bought.selected, late="drop", every="1 day"
    )
    assert again.fingerprint == bought.fingerprint
    assert [table.suffix for table in again.tables] == [""]
    second = CoGrouped("counted", clicks, orders, ON, HOUR, counted.result, nothing, version=2)
    assert second.fingerprint != counted.fingerprint


def test_columns_tell_what_they_are_computed_from() -> None:
    columns = {spec.name: spec for spec in bought.columns_of()}
    assert list(columns) == ["visitor", "window_start", "window_end", "after", "n", "_written_at", "_day"]
    assert columns["visitor"].of == (("clicks", "visitor"), ("orders", "buyer"))
    assert columns["after"].of == (("clicks", "at"), ("orders", "at"))
    assert columns["n"] == ColumnSpec("n", "`n * 2`.", "bigint", (("clicks", "n"),))
    assert "How many." in {spec.name: spec for spec in counted.columns_of(CORRECTIONS)}["n"].meaning
    whole = WindowJoined("whole", clicks, orders, ON, HOUR)
    assert whole.values == ("left_at", "page", "n", "right_at", "amount")


def test_both_sides_may_be_one_stream() -> None:
    pairs = WindowJoined("pairs", clicks, clicks, ("visitor",), HOUR, {"from": "left_page", "to": "right_page"})
    assert pairs.reads == (clicks,)


def test_other_streams_follow_first_results_and_a_delivery_carries_these_or_what_is_current() -> None:
    placed = unit_table_of(bought, Lake("."), "")
    assert (placed.unit, placed.order) == ("window_end", ("visitor", "window_start", "window_end"))
    assert Delivery("out", bought, JsonLines("out")).what == "first"
    assert Delivery("out", bought, JsonLines("out"), what="current").identity == ("_result_id",)
    with pytest.raises(DeclarationError, match="use 'first', 'current'"):
        Delivery("out", bought, JsonLines("out"), what="late")
    with pytest.raises(DeclarationError, match="of a window join its first results can be followed"):
        unit_table_of(bought, Lake("."), "late")


def joined(**given: Any) -> WindowJoined:
    return WindowJoined(**{"name": "bought", "left": clicks, "right": orders, "on": ON, "window": HOUR, **given})


@pytest.mark.parametrize(
    ("declare", "reason"),
    [
        (lambda: joined(on=()), "on of window join 'bought' names no key, so that every row would meet every other"),
        (lambda: joined(on=("visitor",)), "key 'visitor' of window join 'bought' is no column of its right"),
        (lambda: joined(on={"n": "amount"}), "compares 'n' of stream 'clicks', which is bigint, with 'amount'"),
        (lambda: joined(on={"visitor": "buyer", "page": "buyer"}), "names a key of its right stream 'orders' twice"),
        (lambda: joined(on=("page", "page")), "repeats a key"),
        (lambda: joined(window=SessionWindow(seconds_of="n")), "at the right, reads unknown column 'n'"),
        (lambda: joined(kind="right"), "use one of: 'inner', 'left', 'outer'. For a right join exchange the two"),
        (lambda: joined(late="update"), "use one of: 'correct', 'drop'. Only a view over one stream is updated"),
        (lambda: joined(select={}), "names no column"),
        (lambda: joined(select={"n": "at"}), "reads unknown column 'at'"),
        (lambda: joined(select={"x": "sum(n)"}), "takes many rows together"),
        (lambda: joined(left=sided, on={"left": "buyer"}), "derived={'left_key': 'left'}"),
        (lambda: joined(select={"visitor": "n"}), "has the name of a key, a window column or another result"),
        (lambda: joined(name="No"), "'No' cannot name a window join"),
        (lambda: CoGrouped("c", clicks, orders, ON, HOUR, "n bigint", lambda *given: []), "cannot find by its name"),
        (lambda: CoGrouped("c", clicks, orders, ON, HOUR, "window_end bigint", nothing), "has the name of a key"),
        (lambda: CoGrouped("c", clicks, orders, ON, HOUR, "n bigint", nothing, version=0), "is no version"),
    ],
)
def test_what_cannot_be_is_refused(declare: Callable[[], TwoSided], reason: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        declare()
    assert reason in str(refused.value)

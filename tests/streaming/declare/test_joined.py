"""A join is checked when it is declared, without Spark, and knows its columns."""

from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from streaming import BoundedOutOfOrderness, Files, Joined, Json, Stream
from streaming.base.errors import DeclarationError
from streaming.declare.delivery import Delivery
from streaming.sinks.files import JsonLines

orders = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string not null, at timestamp not null, amount double, Note string"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
)
payments = replace(
    orders, name="payments", format=Json("order_id string, at timestamp, paid double, note string, m map<string, int>")
)
GIVEN: dict[str, Any] = {
    "name": "paid",
    "left": orders,
    "right": payments,
    "on": {"id": "order_id"},
    "between": ("-1 hour", "15 minutes"),
}
PAID = Joined(**GIVEN)


def test_a_join_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(PAID)) == PAID
    assert {PAID: 1}[replace(PAID)] == 1
    given = {"id": "id"}
    joined = replace(PAID, select=given)
    given["more"] = "id"
    assert list(joined.types) == ["id"]
    assert (PAID.lower, PAID.upper) == (-timedelta(hours=1), timedelta(minutes=15))


def test_columns_of_both_streams_are_told_apart_and_a_key_is_there_once() -> None:
    added = ["_left_at", "_right_at", "_at", "_watermark", "_batch", "_origin", "_written_at", "_day"]
    own = ["id", "left_at", "amount", "left_Note", "right_at", "paid", "right_note", "m"]
    columns = {spec.name: spec for spec in PAID.columns_of()}
    assert list(columns) == [*own, *added]
    assert columns["id"].of == (("orders", "id"), ("payments", "order_id"))
    computed = replace(PAID, select={"open": "amount - paid", "waited": "_right_at - _left_at"})
    (still_open, waited, *_) = computed.columns_of()
    assert (still_open.type, still_open.of) == ("double", (("orders", "amount"), ("payments", "paid")))
    assert waited.of == (("orders", "at"), ("payments", "at"))
    itself = replace(PAID, right=orders, on=("id",))
    assert [spec.name for spec in itself.columns_of()][:4] == ["id", "left_at", "left_amount", "left_Note"]
    assert itself.reads == (orders,)


def test_rows_without_a_partner_have_a_table_where_they_are_told_of() -> None:
    assert [table.suffix for table in PAID.tables] == [""]
    left = replace(PAID, kind="left")
    assert [table.suffix for table in left.tables] == ["", "unmatched"]
    assert (left.overlaid, PAID.overlaid, PAID.columns_of("unmatched")) == (True, False, ())
    assert left.columns_of("unmatched") == left.columns_of()
    current = [spec.name for spec in left.columns_of("current")]
    assert current == [*left.columns, "_day", "_copy", "_reason", "_revision"]
    assert "id" in Delivery("out", left, JsonLines("out"), output="unmatched").selected
    with pytest.raises(DeclarationError, match=r"output='unmatched' .* is no side output of 'paid', which has: none"):
        Delivery("out", PAID, JsonLines("out"), output="unmatched")


def test_what_changes_no_row_is_not_in_the_fingerprint() -> None:
    assert replace(PAID, description="x", every="1 minute").fingerprint == PAID.fingerprint
    for changed in (
        {"between": ("-1 hour", "16 minutes")},
        {"kind": "left"},
        {"where": "paid > 0"},
        {"late": "drop"},
        {"select": ("id",)},
        {"on": {"Note": "note"}},
    ):
        assert replace(PAID, **changed).fingerprint != PAID.fingerprint


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "Paid"}, "'Paid' cannot name a join"),
        ({"on": (("id", "order_id"),)}, "an entry of on"),
        ({"on": ("id", "id")}, "repeats a key"),
        ({"on": ()}, "names no key"),
        ({"on": ("id",)}, "key 'id' of join 'paid' is no column of its right stream 'payments', which has order_id"),
        ({"on": {"id": "order_id", "Note": "order_id"}}, "names a key of its right stream 'payments' twice"),
        ({"on": {"amount": "note"}}, "'amount' of join 'paid' is of type double .* 'note' of type string"),
        ({"on": {"id": "m"}}, "cannot be compared"),
        (
            {"on": {"amount": "n"}, "right": replace(payments, format=Json("at timestamp, n bigint"))},
            "'amount' .* double .* 'n' of type bigint .* 9007199254740993 equals 9007199254740992",
        ),
        (
            {
                "on": {"d": "e"},
                "left": replace(orders, format=Json("at timestamp, d decimal(38, 0)")),
                "right": replace(payments, format=Json("at timestamp, e decimal(38, 18)")),
            },
            "'d' .* decimal.38, 0. .* 'e' of type decimal.38, 18. .* 38 digits, in which some behind the point",
        ),
        (
            {
                "on": {"d": "e"},
                "left": replace(orders, format=Json("at timestamp, d bigint")),
                "right": replace(payments, format=Json("at timestamp, e decimal(30, 19)")),
            },
            "'d' .* bigint .* as decimals of 38 digits",
        ),
        ({"right": replace(payments, name="orders")}, "two streams that are called 'orders'"),
        ({"between": ("1 hour", "1 hour")}, "'1 hour' is not less than '1 hour'"),
        ({"between": ("1 hour",)}, "has 1 entries"),
        ({"between": ("-1 hour", "soon")}, "'soon' is not an interval"),
        ({"between": ("-1 hour", 15)}, "an entry of between"),
        ({"kind": "right"}, "kind='right' of join 'paid' is unknown; use one of: 'inner', 'left', 'outer'"),
        ({"late": "leave"}, "late='leave' of join 'paid' is unknown; use one of: 'join', 'drop'"),
        ({"select": ("id", "ID")}, "select of join 'paid' has 'id' twice"),
        ({"select": ()}, "names no column"),
        ({"select": ("at",)}, "reads unknown column 'at' .* left_at"),
        ({"select": {"_id": "id"}}, "belong to the event log"),
        ({"select": {"n": "sum(paid)"}}, "takes many rows together"),
        ({"where": "paid"}, "where of join 'paid' is 'paid', a number and no boolean"),
        ({"every": "now"}, "'now' is not an interval"),
    ],
)
def test_what_cannot_be_joined_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        Joined(**{**GIVEN, **changed})


def test_columns_that_are_called_alike_only_once_they_are_told_apart_are_refused() -> None:
    clashing = replace(payments, format=Json("order_id string, at timestamp, left_at string"))
    with pytest.raises(DeclarationError, match="a pair of join 'paid' has 'left_at' twice"):
        replace(PAID, right=clashing)

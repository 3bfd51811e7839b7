"""What can be declared as a delivery, and what is refused with the way out."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from streaming.base.errors import DeclarationError
from streaming.declare.delivery import Delivery
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.sinks.rest import Rest
from tests.support.delivering import by_id, pipeline, readings, visits

OUT, TABLE = JsonLines("out"), Postgres("t", key=("id",))
GIVEN: dict[str, Any] = {"name": "out", "of": readings, "to": OUT}


def test_what_is_left_out_is_what_one_would_expect() -> None:
    rows, results = Delivery("out", readings, OUT), Delivery("out", by_id, Rest("http://x/y"), every="1 minute")
    assert (rows.what, tuple(rows.selected), rows.identity, rows.waits) == ("rows", readings.columns, (), None)
    assert (results.what, tuple(results.selected), results.waits) == ("first", by_id.columns, "1 minute")
    assert (results.most_rows, replace(results, batch=7).most_rows) == (1000, 7)
    changes = Delivery("out", by_id, Postgres("t"), "current")
    assert (changes.identity, Delivery("out", readings, TABLE).identity) == (by_id.identity, ("id",))
    assert tuple(Delivery("out", readings, OUT, "rejected").selected)[:2] == ("payload", "reasons")


def test_a_delivery_is_a_value() -> None:
    delivery = Delivery("out", readings, Rest("http://x/y", headers={"a": "b"}), select={"v": "value + 1"})
    assert pickle.loads(pickle.dumps(delivery)) == delivery
    assert {delivery: 1}[replace(delivery)] == 1


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"name": "Out"}, "'Out' cannot name a delivery"),
        ({"what": "current"}, "is nothing that a stream has; use 'rows', 'rejected', 'late'. Of a view it can be"),
        ({"of": by_id, "what": "rejected"}, "is nothing that a view has; use 'first', 'current', 'late'. Of a stream"),
        ({"select": ("id", "vlue")}, "reads unknown column 'vlue'"),
        ({"select": ()}, "names no column"),
        ({"select": {"_v": "value"}}, "names beginning with '_' belong to the event log"),
        ({"where": "vlue > 1"}, "where of delivery 'out' reads unknown column 'vlue'"),
        ({"key": ("id",)}, "asks JsonLines to keep one row per key, which it cannot"),
        ({"to": TABLE, "select": ("value",)}, "key 'id' of delivery 'out' is not delivered; columns are: value"),
        ({"batch": 0}, "batch=0 of delivery 'out' delivers nothing"),
        ({"every": "now"}, "'now' is not an interval"),
    ],
)
def test_what_cannot_be_delivered_is_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        Delivery(**{**GIVEN, **changed})


def test_x16_asking_for_more_than_the_target_promises_is_refused() -> None:
    assert Delivery("out", readings, OUT).guarantee == "exactly once"
    assert Delivery("out", readings, Rest("http://x/y")).guarantee == "at least once"
    with pytest.raises(DeclarationError, match="is more than Rest can promise, which is 'at least once'"):
        Delivery("out", readings, Rest("http://x/y"), guarantee="exactly once")


@pytest.mark.parametrize(
    ("delivery", "reason"),
    [
        (Delivery("out", replace(readings, name="others"), OUT), "which pipeline 'readings' does not have as it is"),
        (Delivery("by_id", readings, OUT), "delivery name 'by_id' of pipeline 'readings' is taken"),
    ],
)
def test_a_pipeline_refuses_deliveries_of_what_it_does_not_have(delivery: Delivery, reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason):
        pipeline(delivery)


def test_a_pipeline_finds_its_deliveries_by_name() -> None:
    of = pipeline(Delivery("out", visits, OUT))
    assert of.delivery("out").of == visits
    with pytest.raises(DeclarationError, match="has no delivery 'in'; its deliveries: out"):
        of.delivery("in")
    with pytest.raises(DeclarationError, match=r"write a tuple of one: deliveries=\(out,\)"):
        replace_deliveries = type(of)(readings, (by_id,), deliveries=Delivery("out", readings, OUT))  # type: ignore[arg-type]
        assert replace_deliveries

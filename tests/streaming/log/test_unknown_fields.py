"""A field that payloads have and nobody declared is counted in the commit of its batch, and its payload stays."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row, SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Pipeline, Rule, Stream, Tumbling, Windowed, agg, log
from streaming.lake.lake import Lake
from streaming.log.batches import add_unknown, count_unknown
from streaming.operations.repair import preview, repair
from tests.support.instants import NOW, at
from tests.support.runs import run
from tidemark.testing import Payload, line

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders", partition="/([ab])[^/]*$"),
    format=Json("id string, at timestamp"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds"),
    rules=(Rule("known", "id <> 'x'"),),
)
PIPELINE = Pipeline(ORDERS, (Windowed("by_minute", ORDERS, Tumbling("1 minute"), {"orders": agg.count()}),))


def order(id_: str, **more: object) -> dict[str, Any]:
    return {"id": id_, "at": at(1).isoformat(), **more}


def test_undeclared_fields_are_counted_with_their_batch_and_valid_rows_that_have_one_keep_their_payload(
    spark: SparkSession, lake: Lake
) -> None:
    first: list[Payload] = [
        order("a"),
        order("b", note="n", price=1),
        order("c", price=2),
        order("x", price=None),
        "no JSON",
    ]
    done = run(spark, lake, PIPELINE, first, [order("d")], [order("e", note="m")])

    assert [batch.unknown for batch in log.read_batches(lake, ORDERS)[::-1] if batch.cause == "source"] == [
        {"price": 3, "note": 1},
        {},
        {"note": 1},
    ]
    assert done.unknown == {ORDERS.name: {"price": 3, "note": 2}}
    rows = log.read_log(spark, lake, ORDERS)
    assert "_unknown" not in rows.columns
    payloads = {row["id"]: row["_raw"] for row in log.valid(rows).collect()}
    assert {id_: payload and bytes(payload) for id_, payload in payloads.items()} == {
        "a": None,
        "b": line(first[1]),
        "c": line(first[2]),
        "d": None,
        "e": line(order("e", note="m")),
    }

    assert preview(spark, lake, PIPELINE, lambda: NOW).examined == 2
    assert (repair(spark, lake, PIPELINE, lambda: NOW).examined, log.rejected(rows).count()) == (2, 2)


def test_the_twenty_most_frequent_fields_are_named_and_the_others_counted_together() -> None:
    sets = [Row(names=None, number=7), Row(names="a\x1fb", number=3), Row(names="b", number=2)]
    assert count_unknown(sets) == {"b": 5, "a": 3}
    many = [Row(names=f"field_{number:02}", number=1 + number) for number in range(25)]
    counted = add_unknown([count_unknown(many)])
    assert list(counted.items())[:2] == [("field_24", 25), ("field_23", 24)]
    assert (len(counted), counted["..."], sum(counted.values())) == (21, 1 + 2 + 3 + 4 + 5, 25 * 26 // 2)
    assert add_unknown([counted, {"field_00": 30, "...": 1}])["field_00"] == 30
    assert sum(add_unknown([counted, counted]).values()) == 2 * sum(counted.values())

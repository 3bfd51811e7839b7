"""What is current of joins is delivered as of views: late partners and corrections come as upserts and deletes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    CoGrouped,
    Delivery,
    Files,
    Joined,
    Json,
    JsonLines,
    Lake,
    Pipeline,
    Postgres,
    SessionWindow,
    Stream,
    Tumbling,
    WindowJoined,
    drain,
)
from streaming.audit.deliveries import audit_deliveries
from streaming.base.errors import DeclarationError
from streaming.declare.operator import Operator
from streaming.operators.runtime import runtime_of
from tests.support.consumer import Consumer, current_rows
from tests.support.delivering import Courier
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.postgres import rows
from tests.support.runs import tuples
from tidemark.testing import correct


def values(key: Any, start: int, end: int, left: Sequence[Any], right: Sequence[Any]) -> Iterator[Mapping[str, Any]]:
    """Nothing once there are as many on both sides."""
    if len(left) != len(right):
        yield {"clicks": [row.n for row in left], "ads": [row.n for row in right]}


clicks, ads = (
    Stream(
        name,
        Files(f"landing/{name}", files_per_batch=1),
        Json("k string, at timestamp not null, n bigint"),
        "at",
        BoundedOutOfOrderness("1 second", max_ahead="3650 days"),
    )
    for name in ("clicks", "ads")
)
paid = Joined(
    "paid", clicks, ads, ("k",), ("-5 seconds", "5 seconds"), "left", select={"click": "left_n", "ad": "right_n"}
)
met = WindowJoined(
    "met", clicks, ads, ("k",), Tumbling("10 seconds"), {"click": "left_n", "ad": "right_n"}, kind="outer"
)
visits = CoGrouped(
    "visits", clicks, ads, ("k",), SessionWindow("3 seconds"), "clicks array<bigint>, ads array<bigint>", values
)
OPERATORS: tuple[Operator, ...] = (paid, met, visits)
PIPELINE = Pipeline(name="shop", streams=(clicks, ads), operators=OPERATORS)
SELECTED: dict[str, tuple[str, ...]] = {"paid": ("click", "ad"), "met": met.columns, "visits": visits.columns}


_CORRECTED = "upsert", "correction"


def land(lake: Lake, stream: Stream, *batches: str) -> None:
    """Batches in the notation `k@2=1`: key, seconds after T0, value."""
    payloads = []
    for batch in batches:
        entries = [(key, *rest.split("=")) for key, rest in (entry.split("@") for entry in batch.split())]
        payloads.append([{"k": key, "at": at(float(time)).isoformat(), "n": int(n)} for key, time, n in entries])
    land_all(lake, stream, *payloads)


class Told(Consumer):
    """A consumer of one delivery."""

    def __init__(self, lake: Lake, delivery: Delivery) -> None:
        self.folder = Path(lake.root, delivery.name)
        super().__init__(self.folder, delivery.identity)

    def revisions(self, *columns: str) -> list[list[tuple[Any, ...]]]:
        """Change, reason and `columns` of what each revision told."""
        changes: dict[int, list[tuple[Any, ...]]] = {}
        for path in sorted(self.folder.glob("*.json")):
            for row in map(json.loads, path.read_text().splitlines()):
                entry = (row["_change"], row["_reason"], *(row[name] for name in columns))
                changes.setdefault(row["_revision"], []).append(entry)
        return [sorted(changes[revision], key=str) for revision in sorted(changes)]


@pytest.mark.long
def test_a_consumer_of_the_changes_of_joins_holds_what_is_current_whoever_came_late(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Clicks 1 and 3 have no ads until 7 and 6 come late, for 3 on another day; click 2 is late itself.

    ```
    clicks  m@-2=3  k@1=1 ............... k@60=9 | k@2=2       | k@90=10
    ads                    z@40=8 z@61=8         | k@3=7 m@2=6 | z@90=8
    ```
    """
    out = {
        operator.name: Delivery(
            operator.name + "_out",
            operator,
            JsonLines(f"{operator.name}_out", by="none"),
            "current",
            select=SELECTED[operator.name],
        )
        for operator in OPERATORS
    }
    by_click = Delivery("by_click", paid, Postgres("by_click", ("click",), postgres), "current", ("click", "ad"))
    deliveries = (*out.values(), by_click)
    consumers = {name: Told(lake, delivery) for name, delivery in out.items()}
    couriers = [Courier(spark, lake, delivery) for delivery in deliveries]

    def moment() -> dict[str, set[str]]:
        drain(spark, lake, PIPELINE, now=lambda: NOW)
        for operator in OPERATORS:
            correct(spark, lake, operator, lambda: NOW)
        assert sum(courier.deliver() for courier in couriers) >= 1
        held = {name: consumer.holds() for name, consumer in consumers.items()}
        assert held == {of.name: current_rows(spark, lake, of, SELECTED[of.name]) for of in OPERATORS}
        pairs = runtime_of(paid, lake).readable["current"](spark)
        assert sorted(rows(postgres, "select click, ad from by_click"), key=str) == sorted(
            tuples(pairs, "click", "ad"), key=str
        )
        return held

    land(lake, clicks, "m@-2=3 k@1=1", "k@60=9")
    land(lake, ads, "z@40=8", "z@61=8")
    first = moment()
    assert first["paid"] == {'{"ad": null, "click": 1}', '{"ad": null, "click": 3}'}
    assert len(first["met"]) == 3 and len(first["visits"]) == 3

    land(lake, clicks, "k@2=2")
    land(lake, ads, "k@3=7 m@2=6")
    moment()
    alone, late = consumers["paid"].revisions("click", "ad")
    assert alone == [("upsert", "first", 1, None), ("upsert", "first", 3, None)]
    assert late == [
        ("delete", "correction", 1, None),
        ("delete", "correction", 3, None),
        ("upsert", "correction", 1, 7),
        # The ad of click 2 came too late for it as well, with the same step.
        ("upsert", "correction", 2, 7),
        ("upsert", "correction", 3, 6),
    ]
    _, late = consumers["met"].revisions("click", "ad")
    corrected = [(*_CORRECTED, 1, 7), (*_CORRECTED, 2, 7), (*_CORRECTED, None, 6)]
    assert late == [("delete", "correction", 1, None), *corrected]
    _, late = consumers["visits"].revisions("clicks", "ads")
    assert late == [("delete", "correction", [1], []), (*_CORRECTED, [1, 2], [7]), (*_CORRECTED, [], [6])]

    land(lake, clicks, "k@90=10")
    land(lake, ads, "z@90=8")
    moment()
    assert [courier.deliver() for courier in couriers] == [0, 0, 0, 0]
    checked = Pipeline(name="shop", streams=(clicks, ads), operators=OPERATORS, deliveries=deliveries)
    findings = list(audit_deliveries(spark, lake, checked))
    assert findings and [finding for finding in findings if not finding.holds] == []


@pytest.mark.long
def test_results_with_maps_at_any_depth_have_an_order_and_are_delivered(spark: SparkSession, lake: Lake) -> None:
    tagged = Stream(
        "tagged",
        Files("landing/tagged"),
        Json("k string, at timestamp not null, tags array<struct<m: map<string, bigint>>>"),
        "at",
        BoundedOutOfOrderness("1 second"),
    )
    of = WindowJoined("of", clicks, tagged, ("k",), Tumbling("10 seconds"), {"click": "n", "tags": "tags"})
    out = Delivery("out", of, JsonLines("out", by="none"), "first", select=("click", "tags"))
    land(lake, clicks, "k@1=1 k@2=2 k@60=9")
    tags = [[{"m": {"b": 1, "a": 2}}], [], None]
    land_all(lake, tagged, [{"k": "k", "at": at(3).isoformat(), "tags": each} for each in tags])
    pipeline = Pipeline(name="tags", streams=(clicks, tagged), operators=(of,), deliveries=(out,))
    drain(spark, lake, pipeline, end_of_input=True, now=lambda: NOW)
    (path,) = Path(lake.root, "out").glob("*.json")
    told = [(row["click"], row["tags"]) for row in map(json.loads, path.read_text().splitlines())]
    assert sorted(told, key=str) == sorted(((click, each) for click in (1, 2) for each in tags), key=str)
    assert [finding for finding in audit_deliveries(spark, lake, pipeline) if not finding.holds] == []


def test_a_result_is_known_by_a_text_unless_the_delivery_has_a_key() -> None:
    unkeyed = Delivery("out", paid, JsonLines("out"), "current", select=("click",))
    assert (unkeyed.identity, tuple(unkeyed.selected)) == (("_result_id",), ("click", "_result_id"))
    keyed = Delivery("out", met, JsonLines("out"), "current", key=("k", "window_start"))
    assert tuple(keyed.selected) == met.columns
    assert keyed.fingerprint != Delivery("out", met, JsonLines("out"), "current").fingerprint
    inner = Joined("inner", clicks, ads, ("k",), ("-5 seconds", "5 seconds"))
    with pytest.raises(DeclarationError, match="'current' of delivery 'out' is nothing that a join has; use 'rows'"):
        Delivery("out", inner, JsonLines("out"), "current")

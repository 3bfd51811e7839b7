"""Golden tests: what is current, as a Delta table and an Iceberg table that others read, whatever dies on the way."""

from __future__ import annotations

from datetime import date
from typing import Any

import deltalake
import duckdb
import polars
import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.deliveries import reconcile
from streaming.declare.delivery import Delivery
from streaming.views.corrections import correct
from tests.support.delivering import Courier, by_id, ingested, reading, readings, visits
from tests.support.instants import NOW, at
from tests.support.killed import Killed, killed_at
from tests.support.runs import read_current
from tests.support.tables_of_files import DeltaPlace, Place, in_file

DAY = date(2026, 1, 1)


def current(spark: SparkSession, lake: Lake) -> list[tuple[Any, ...]]:
    """The sessions that are current, in order."""
    rows = read_current(spark, lake, visits).select(*visits.columns).toArrow().to_pylist()
    return sorted(tuple(row.values()) for row in rows)


def audited(spark: SparkSession, lake: Lake, delivery: Delivery) -> list[tuple[int, int]]:
    return [(finding.checked, finding.broken) for finding in reconcile(spark, lake, delivery)]


@pytest.mark.long
def test_tables_of_what_is_current_are_that_at_the_end_and_others_read_it(spark: SparkSession, lake: Lake) -> None:
    """A late row joins two sessions of a to one, so that results vanish, and another one prolongs that of b."""
    delta, iceberg = DeltaPlace(lake), in_file(lake)
    deliveries = [
        Delivery("to_delta", visits, delta.target(), "current", batch=2),
        Delivery("to_iceberg", visits, iceberg.target(), "current", batch=2),
        Delivery("history", visits, DeltaPlace(lake, "out/history").target(mode="append"), "current"),
    ]
    couriers = [Courier(spark, lake, delivery) for delivery in deliveries]
    ingested(spark, lake, [reading(id_, seconds) for id_, seconds in (("a", 1), ("a", 14), ("b", 2), ("c", 60))])
    for courier in couriers:
        courier.deliver()
    ingested(spark, lake, [reading("a", 7), reading("b", 4), reading("d", 90)])
    correct(spark, lake, visits, [DAY], lambda: NOW)
    for courier in couriers:
        courier.deliver()

    expected = current(spark, lake)
    assert [(row[0], row[-1]) for row in expected if row[0] != "c"] == [("a", 3), ("b", 2)]
    columns = list(visits.columns)
    assert delta.rows(*columns) == expected, "by DuckDB over delta-rs"
    assert sorted(polars.scan_delta(lake.path(delta.uri)).select(columns).collect().rows()) == expected
    in_spark = spark.read.format("delta").load(lake.path(delta.uri)).select(*columns).toArrow().to_pylist()
    assert sorted(tuple(row.values()) for row in in_spark) == expected
    rows = iceberg.open().scan(selected_fields=tuple(columns)).to_arrow().select(columns).to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == expected, "by PyIceberg"
    told = deltalake.DeltaTable(lake.path("out/history")).to_pyarrow_dataset()
    changes = duckdb.from_arrow(told).aggregate("_change, _reason, count(*)").order("all").fetchall()
    assert changes == [("delete", "correction", 3), ("upsert", "correction", 2), ("upsert", "first", 4)]

    for delivery in deliveries:
        assert [broken for _, broken in audited(spark, lake, delivery)] == [0, 0, 0]
    delta.open().update({"readings": "7"}, predicate="id = 'a'")
    *counts, contents = reconcile(spark, lake, deliveries[0])
    assert ([finding.broken for finding in counts], contents.broken) == ([0, 0], 1)
    assert 'such as {"id":"a"' in contents.advice
    couriers[0].runtime.begin_anew(again=True)
    couriers[0].deliver()
    assert delta.rows(*columns) == expected, "delivered again, each row over what somebody has made of it"


@pytest.mark.sampled
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_process_that_dies_after_each_of_its_commits_loses_and_doubles_nothing(
    kind: str, spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits of the ledger, and of the table where it is a Delta table; what they leave, the next process goes on."""
    place: Place = DeltaPlace(lake) if kind == "delta" else in_file(lake)
    delivery = Delivery("rows", readings, place.target(), select=("id", "value"), batch=2)
    ingested(spark, lake, [reading("a", number, number) for number in range(5)])
    deaths = 0
    while True:
        with monkeypatch.context() as dying:
            killed_at(2, dying)
            try:
                Courier(spark, lake, delivery).deliver()
                break
            except Killed:
                deaths += 1
        assert deaths < 20
    assert deaths > 3
    assert place.rows("value") == [(number,) for number in range(5)]
    assert audited(spark, lake, delivery) == [(5, 0)] * 3


@pytest.mark.long
def test_days_come_again_into_a_table_that_keeps_keys(spark: SparkSession, lake: Lake) -> None:
    place = DeltaPlace(lake)
    delivery = Delivery("sums", by_id, place.target(), "current")
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 2)], [reading("a", 30, 3)])
    courier = Courier(spark, lake, delivery)
    courier.deliver()
    expected = place.rows("id", "total")
    assert expected == [("a", 1), ("b", 2)]
    place.open().delete("id = 'a'")
    courier.runtime.ask_for_days([at(0).date()])
    courier.deliver()
    assert place.rows("id", "total") == expected


@pytest.mark.long
def test_rejected_and_late_rows_are_tables_where_that_is_declared(spark: SparkSession, lake: Lake) -> None:
    refused, late = DeltaPlace(lake, "out/refused"), DeltaPlace(lake, "out/late")
    ingested(spark, lake, [reading("a", 1, 5), reading("b", 2, None), reading("a", 40, 1)], [reading("a", 3, 2)])
    for delivery in (
        Delivery("refused", readings, refused.target(mode="append"), "rejected"),
        Delivery("late", by_id, late.target(mode="append"), "late"),
    ):
        Courier(spark, lake, delivery).deliver()
    (row,) = refused.open().to_pyarrow_table().to_pylist()
    assert row["reasons"][0].startswith("value_present") and b'"b"' in row["payload"]
    (row,) = late.open().to_pyarrow_table().to_pylist()
    assert (row["id"], row["value"], row["window_start"]) == ("a", 2, at(0))

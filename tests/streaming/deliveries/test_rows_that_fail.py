"""Rows that a delivery cannot compute: each is a dead letter with expression and values, and no other row waits."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Joined, Json, JsonLines, Lake, Pipeline, Postgres, Stream, drain
from streaming.audit.deliveries import audit_delivery, reconcile
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.views.corrections import correct
from tests.support.delivering import Courier, by_id, ingested, reading, readings
from tests.support.feeds import land_all
from tests.support.instants import NOW, at
from tests.support.postgres import rows

OUT = JsonLines("out", by="none")


def arrived(lake: Lake, folder: str = "out") -> list[list[dict[str, Any]]]:
    """The rows of each file, in the order of the files' names."""
    paths = sorted(Path(lake.root, folder).glob("*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def dead(runtime: DeliveryRuntime) -> list[tuple[Any, ...]]:
    """Place, payload, error and attempt of the dead letters."""
    return [
        (letter["origin"]["unit"], letter["origin"]["row"], letter["payload"], letter["error"], letter["attempt"])
        for letter in runtime.dead_letters.pending(0, 1_000)
    ]


def broken(spark: SparkSession, lake: Lake, delivery: Delivery) -> list[int]:
    return [finding.broken for finding in reconcile(spark, lake, delivery)]


@pytest.mark.long
def test_a_row_that_select_cannot_compute_is_a_dead_letter_and_arrives_after_a_fix(
    spark: SparkSession, lake: Lake
) -> None:
    per = Delivery("per", readings, OUT, select={"id": "id", "per": "100 div value", "late": "value > 9"}, batch=2)
    ingested(spark, lake, [reading("a", 1, 1), reading("b", 2, 0), reading("c", 3, 2)], [reading("d", 4, 0)])
    first = Courier(spark, lake, per)
    assert first.runtime.next_batch(spark) == 0
    # Another process sends the batch that was cut.
    second = Courier(spark, lake, per)
    assert second.deliver() == 2
    assert [[(row["id"], row["per"]) for row in batch] for batch in arrived(lake)] == [[("a", 100)], [("c", 50)]]
    why = "column 'per' cannot be computed: 100 div value, of value=0"
    assert dead(second.runtime) == [
        (0, 1, '{"id":"b","per":null,"late":false}', why, 1),
        (1, 0, '{"id":"d","per":null,"late":false}', why, 1),
    ]
    assert broken(spark, lake, per) == [0, 0, 0]
    assert second.runtime.standing().dead == 2

    second.runtime.dead_letters.ask(0, 1)
    second.deliver()
    assert [letter[-1] for letter in dead(second.runtime)] == [2, 2]
    fixed = replace(per, select={"id": "id", "per": "try_divide(100, value)"})
    third = Courier(spark, lake, fixed)
    third.runtime.dead_letters.ask(0, 10)
    third.deliver()
    assert dead(third.runtime) == []
    assert [row["id"] for row in arrived(lake)[-1]] == ["b", "d"]
    assert [finding.broken for finding in audit_delivery(spark, lake, fixed)] == [0, 0]


def test_a_row_that_where_cannot_judge_is_a_dead_letter_and_keeps_its_place_in_an_upsert(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Key `a` also has a row that arrives, key `e` none; `c` is left out by the condition."""
    few = Delivery(
        "few",
        readings,
        Postgres("few", ("id",), postgres),
        select={"id": "if(value < 0, raise_error('no'), id)", "value": "value"},
        where="100 div value > 10",
    )
    batch = [("a", 0), ("a", 1), ("b", 2), ("c", 50), ("e", 0)]
    ingested(spark, lake, [reading(id_, second, value) for second, (id_, value) in enumerate(batch)])
    courier = Courier(spark, lake, few)
    courier.deliver()
    assert rows(postgres, "select id, value from few order by id") == [("a", 1), ("b", 2)]
    why = "where cannot be computed: 100 div value > 10, of value=0"
    assert dead(courier.runtime) == [
        (0, 0, '{"id":"a","value":0}', why, 1),
        (0, 3, '{"id":"e","value":0}', why, 1),
    ]
    assert [finding.broken for finding in audit_delivery(spark, lake, few)] == [0, 0]


@pytest.mark.long
def test_a_current_result_that_cannot_be_computed_is_a_dead_letter_until_it_is_another(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Of `a` the column fails, of `b` the condition, until late rows make both right; `c` is right at once."""
    out = Delivery(
        "out",
        by_id,
        Postgres("totals", connection=postgres),
        "current",
        select={
            "id": "id",
            "window_start": "window_start",
            "window_end": "window_end",
            "per": "12 div coalesce(total - 3, 0)",
        },
        where="12 div (total - 4) < 100",
    )
    ingested(spark, lake, [reading("a", 1, 3), reading("b", 2, 4), reading("c", 3, 5), reading("z", 30, 9)])
    courier = Courier(spark, lake, out)
    courier.deliver()
    assert rows(postgres, "select id, per from totals") == [("c", 6)]
    assert [(json.loads(letter[2])["id"], letter[3]) for letter in dead(courier.runtime)] == [
        ("a", "column 'per' cannot be computed: 12 div coalesce(total - 3, 0), of total=3"),
        ("b", "where cannot be computed: 12 div (total - 4) < 100, of total=4"),
    ]
    assert [finding.broken for finding in audit_delivery(spark, lake, out)] == [0, 0]

    ingested(spark, lake, [reading("a", 4, 4), reading("b", 5, 5)])
    correct(spark, lake, by_id, [date(2026, 1, 1)], lambda: NOW)
    courier.deliver()
    assert rows(postgres, "select id, per from totals order by id") == [("a", 3), ("b", 2), ("c", 6)]
    # What was put aside is not what is current, and does not come back.
    courier.runtime.dead_letters.ask(0, 10)
    assert courier.runtime.dead_letters.count() == 2
    assert [finding.broken for finding in audit_delivery(spark, lake, out)] == [0, 0]
    courier.deliver()
    assert courier.runtime.dead_letters.count() == 0
    assert rows(postgres, "select id, per from totals order by id") == [("a", 3), ("b", 2), ("c", 6)]
    assert broken(spark, lake, out) == [0, 0, 0]


@pytest.mark.long
def test_results_of_which_the_key_cannot_be_computed_are_dead_letters_of_their_own(
    spark: SparkSession, lake: Lake
) -> None:
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
        "paid", clicks, ads, ("k",), ("0 seconds", "5 seconds"), "left", select={"a": "left_n", "b": "right_n"}
    )
    out = Delivery("out", paid, OUT, "current", select={"key": "12 div a", "b": "b"}, key=("key",))
    for stream, values in ((clicks, (0, 3, 0)), (ads, (7, 8, 9))):
        batch = [{"k": str(n), "at": at(n).isoformat(), "n": value} for n, value in enumerate(values)]
        land_all(lake, stream, batch)
    drain(spark, lake, Pipeline(name="shop", streams=(clicks, ads), operators=(paid,)), now=lambda: NOW)
    courier = Courier(spark, lake, out)
    courier.deliver()
    assert [[(row["key"], row["b"]) for row in batch] for batch in arrived(lake)] == [[(4, 8)]]
    letters = sorted((json.loads(letter[2])["b"], letter[3]) for letter in dead(courier.runtime))
    why = "column 'key' cannot be computed: 12 div a, of a=0"
    assert letters == [(7, why), (9, why)]
    assert [finding.broken for finding in audit_delivery(spark, lake, out)] == [0, 0]

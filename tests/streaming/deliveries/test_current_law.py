"""A consumer that applies the changes of a delivery holds what is current, at any quiet moment."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.laws import audit
from streaming.declare.delivery import Delivery
from streaming.operations.rebuild import rebuild
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.views.corrections import correct, plan
from tests.support.consumer import Consumer, current_rows
from tests.support.delivering import Courier, by_id, pipeline, reading, visits
from tests.support.instants import NOW
from tests.support.postgres import rows
from tests.support.runs import read_current, run
from tests.support.seeds import draws


def some_batch(chance: random.Random, until: float) -> list[dict[str, Any]]:
    """Rows of two keys, most of them new, some of them late by up to a minute and a half."""
    return [
        reading(chance.choice("ab"), max(0.0, until - chance.choice((0, 3, 9, 30, 90)) - chance.random()), number)
        for number in range(chance.randint(1, 6))
    ]


@pytest.mark.long
def test_a_consumer_that_applies_all_changes_holds_what_is_current_at_any_quiet_moment(
    spark: SparkSession, lake: Lake, postgres: str
) -> None:
    """Tumbling windows into files, sessions into Postgres, while late rows are corrected now and then."""
    chance = draws("moments")
    counts = Delivery("counts", by_id, JsonLines("out/counts", by="none"), "current", batch=3)
    merged = Delivery("merged", visits, Postgres("merged", connection=postgres), "current")
    consumer = Consumer(Path(lake.root, "out/counts"), by_id.identity)
    couriers = [Courier(spark, lake, delivery) for delivery in (counts, merged)]
    corrected = 0
    for moment in range(4):
        run(spark, lake, pipeline(), some_batch(chance, 100.0 + 40 * moment), some_batch(chance, 120.0 + 40 * moment))
        for view in (by_id, visits) if moment % 2 else ():
            days = [pending.day for pending in plan(spark, lake, view)]
            corrected += len(days)
            correct(spark, lake, view, days, lambda: NOW)
        if moment == 2:
            rebuild(spark, lake, pipeline(), by_id, now=lambda: NOW)
            couriers[0].runtime.forget()
            couriers[0].runtime.begin_anew(again=False)
        for courier in couriers:
            courier.deliver()
        assert consumer.holds() == current_rows(spark, lake, by_id, by_id.columns)
        columns = ", ".join(visits.columns)
        held = rows(postgres, f"select {columns} from merged")
        there = [
            tuple(row.values())
            for row in read_current(spark, lake, visits).select(*visits.columns).toArrow().to_pylist()
        ]
        assert sorted(held, key=str) == sorted(there, key=str)
    assert corrected > 1
    findings = [finding for finding in audit(spark, lake, pipeline(counts, merged)) if finding.law == "delivery"]
    assert [(finding.subject, finding.holds, finding.checked > 0) for finding in findings] == [
        *(("counts", True, True), ("counts", True, True), ("merged", True, True), ("merged", True, True))
    ]
    assert findings[-1].compared == "results that are current = rows in the target"

"""A consumer that applies the changes of a delivery holds what is current, at any quiet moment."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.laws import audit
from streaming.declare.delivery import Delivery
from streaming.declare.windowed import Windowed
from streaming.operations.rebuild import rebuild
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.views.corrections import correct, plan
from tests.support.delivering import Courier, by_id, pipeline, reading, visits
from tests.support.instants import NOW
from tests.support.postgres import rows
from tests.support.runs import read_current, run


class Consumer:
    """Plain Python, and no more than a reader of lines needs to know: the newest revision of a key counts."""

    def __init__(self, folder: Path, identity: tuple[str, ...]) -> None:
        self._folder = folder
        self._identity = identity

    def holds(self) -> set[str]:
        """The rows, each as JSON, whatever the order in which the files are read."""
        changes = [json.loads(line) for path in self._folder.glob("*.json") for line in path.read_text().splitlines()]
        random.shuffle(changes)
        newest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for change in changes:
            key = tuple(change[name] for name in self._identity)
            if key not in newest or newest[key]["_revision"] < change["_revision"]:
                newest[key] = change
        held = [change for change in newest.values() if change["_change"] == "upsert"]
        return {json.dumps({n: v for n, v in row.items() if not n.startswith("_")}, sort_keys=True) for row in held}


def current(spark: SparkSession, lake: Lake, view: Windowed) -> set[str]:
    found = read_current(spark, lake, view).select(*view.columns).toArrow().to_pylist()
    plain = [
        {
            name: value.isoformat().replace("+00:00", "Z") if hasattr(value, "isoformat") else value
            for name, value in row.items()
        }
        for row in found
    ]
    return {json.dumps(row, sort_keys=True) for row in plain}


def some_batch(chance: random.Random, until: float) -> list[dict[str, Any]]:
    """Rows of two keys, most of them new, some of them late by up to a minute and a half."""
    return [
        reading(chance.choice("ab"), max(0.0, until - chance.choice((0, 3, 9, 30, 90)) - chance.random()), number)
        for number in range(chance.randint(1, 6))
    ]


@pytest.mark.parametrize("seed", [1])
def test_a_consumer_that_applies_all_changes_holds_what_is_current_at_any_quiet_moment(
    spark: SparkSession, lake: Lake, postgres: str, seed: int
) -> None:
    """Tumbling windows into files, sessions into Postgres, while late rows are corrected now and then."""
    chance = random.Random(seed)
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
        assert consumer.holds() == current(spark, lake, by_id)
        columns = ", ".join(visits.columns)
        held = rows(postgres, f"select {columns} from merged")
        there = [
            tuple(row.values())
            for row in read_current(spark, lake, visits).select(*visits.columns).toArrow().to_pylist()
        ]
        assert sorted(held, key=str) == sorted(there, key=str)
    assert corrected > 1
    found = [finding for finding in audit(spark, lake, pipeline(counts, merged)) if finding.law == "delivery"]
    assert [(finding.subject, finding.holds, finding.checked > 0) for finding in found] == [
        *(("counts", True, True), ("counts", True, True), ("merged", True, True), ("merged", True, True))
    ]
    assert found[-1].compared == "results that are current = rows in the target"

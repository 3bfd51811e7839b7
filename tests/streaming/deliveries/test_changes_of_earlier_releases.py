"""A delivery whose changes an earlier release wrote down itself goes on: no row is lost, none comes twice."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streaming import Delivery, JsonLines, Lake, Windowed
from streaming.audit.deliveries import audit_deliveries
from streaming.deliveries.ledger import Ledger, LedgerTable
from streaming.operators.runtime import runtime_of
from streaming.tables import delta
from tests.support.consumer import Consumer, current_rows
from tests.support.delivering import Courier, by_id, ingested, pipeline, reading
from tests.support.instants import NOW
from tidemark.testing import correct

OUT = JsonLines("out", by="none")


def written_down(spark: SparkSession, lake: Lake, delivery: Delivery, changes: Sequence[tuple[str, int, str]]) -> None:
    """The table of changes as 0.1.0 had it: each upsert or delete of a key by its revision."""
    view = delivery.of
    assert isinstance(view, Windowed)
    results = runtime_of(view, lake).readable["first"](spark).select(*view.columns, "_day")
    told = spark.createDataFrame(list(changes), "_change string, _revision bigint, of string")
    rows = results.join(told, results["id"] == told["of"]).select(*view.columns, "_day", "_change", "_revision")
    values = {name: F.when(F.col("_change") == "upsert", F.col(name)) for name in view.values}
    rows = rows.withColumns({**values, "_reason": F.lit("first")})
    uri = lake.table(delivery, "changes")
    delta.create(uri, rows.schema, append_only=True, description="Changes of an earlier release")
    newest = max(revision for _, revision, _ in changes)
    numbers = {"revision": newest, "closed": 0, "updates": -1, "corrections": -1, "step": -1, "again": 0}
    delta.append(rows, uri, numbers=numbers)


@pytest.mark.long
def test_a_lake_that_is_upgraded_in_mid_delivery_goes_on_where_it_was(spark: SparkSession, lake: Lake) -> None:
    """```
    earlier   revision 0: a and b, of which a has arrived ... revision 1: b is deleted, by a correction
    now       b arrives, and is deleted; then what has changed since: b is there, and c; then a is corrected
    ```
    """
    out = Delivery("out", by_id, OUT, "current", batch=2)
    ingested(spark, lake, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    written_down(spark, lake, out, [("upsert", 0, "a"), ("upsert", 0, "b"), ("delete", 1, "b")])
    earlier = LedgerTable(lake, out, "")
    earlier.begin(Ledger(of_generation=0))
    once = Courier(spark, lake, replace(out, batch=1))
    once.runtime.next_batch(spark)
    once.runtime.deliver(spark)

    ingested(spark, lake, [reading("c", 45, 3), reading("d", 70, 3)])
    courier = Courier(spark, lake, out)
    courier.deliver()
    correct(spark, lake, by_id, lambda: NOW)
    ingested(spark, lake, [reading("a", 2, 2)])
    correct(spark, lake, by_id, lambda: NOW)
    courier.deliver()

    assert Consumer(Path(lake.root, "out"), out.identity).holds() == current_rows(spark, lake, by_id, by_id.columns)
    told = [json.loads(line) for path in sorted(Path(lake.root, "out").glob("*.json")) for line in path.open()]
    changes = [(row["id"], row["_change"], row["total"], row["_revision"]) for row in told]
    assert changes[:3] == [("a", "upsert", 5, 0), ("b", "upsert", 7, 0), ("b", "delete", None, 1)]
    assert sorted(changes[3:], key=str) == [
        ("a", "upsert", 1, 3),
        ("a", "upsert", 7, 4),
        ("b", "upsert", 7, 2),
        ("c", "upsert", 3, 3),
    ]
    findings = list(audit_deliveries(spark, lake, pipeline(out)))
    assert findings and all(finding.holds and not finding.waiting for finding in findings)


@pytest.mark.sampled
@pytest.mark.parametrize("again", [False, True])
def test_a_delivery_of_an_earlier_release_begins_anew_with_all_that_is_current(
    spark: SparkSession, lake: Lake, again: bool
) -> None:
    """Without `again` nothing is sent that is there; with it everything is, and what vanished is deleted once more."""
    out = Delivery("out", by_id, OUT, "current", batch=2)
    ingested(spark, lake, [reading("a", 1, 5), reading("b", 3, 7), reading("a", 40, 1)])
    written_down(spark, lake, out, [("upsert", 0, "a"), ("upsert", 0, "b")])
    LedgerTable(lake, out, "").begin(Ledger(of_generation=0))
    courier = Courier(spark, lake, out)
    assert courier.deliver() == 1
    courier.runtime.begin_anew(again=again)
    assert courier.deliver() == (1 if again else 0)
    assert Consumer(Path(lake.root, "out"), out.identity).holds() == current_rows(spark, lake, by_id, by_id.columns)

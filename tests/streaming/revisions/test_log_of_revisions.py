"""The log of what came of a stream with a key: its files are those of batches, and not of days."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream, Tumbling, Windowed, agg
from streaming.audit.laws import audit
from streaming.base import DAY
from streaming.log import log_schema, read_log, rejected
from streaming.revisions.steps import rows_now
from streaming.tables import delta
from tests.support.instants import at
from tests.support.runs import run

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("order_id string, version bigint, at timestamp, amount bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("10 seconds", max_ahead="30 days"),
    key=("order_id",),
    sequence="version",
)
BY_MINUTE = Windowed("by_minute", ORDERS, Tumbling("1 minute"), {"orders": agg.count(), "paid": agg.sum("amount")})
PIPELINE = Pipeline(ORDERS, (BY_MINUTE,))
DAYS = 6
A_DAY = 86_400


def batch(version: int) -> list[dict[str, object]]:
    """A revision of an order of each day, and a row without a time."""
    rows = [order(day, version, at(day * A_DAY).isoformat()) for day in range(DAYS)]
    return [*rows, order(0, version, None)]


def order(number: int, version: int, time: str | None) -> dict[str, object]:
    return {"order_id": f"o{number}", "version": version, "at": time, "amount": 10 * version}


def files(lake: Lake) -> int:
    return len(delta.opened(lake.log(ORDERS.revisions)).file_uris())


def versions(spark: SparkSession, lake: Lake) -> list[int]:
    return [row["version"] for row in rows_now(spark, lake, ORDERS).collect()]


def broken(spark: SparkSession, lake: Lake) -> Sequence[object]:
    return [finding for finding in audit(spark, lake, PIPELINE) if not finding.holds]


@pytest.mark.parametrize("mode", ["fast", pytest.param("careful", marks=pytest.mark.long)])
def test_a_batch_of_revisions_of_many_days_is_few_files_and_reads_as_ever(
    spark: SparkSession, lake: Lake, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMARK_INGEST", mode)
    run(spark, lake, PIPELINE, batch(1))
    before = files(lake)
    run(spark, lake, PIPELINE, batch(2))
    assert delta.partitions(delta.opened(lake.log(ORDERS.revisions))) == []
    assert files(lake) - before < 4
    came = read_log(spark, lake, ORDERS.revisions)
    assert came.select(DAY).distinct().count() == DAYS + 1
    assert rejected(came).count() == 2
    assert versions(spark, lake) == [2] * DAYS
    assert broken(spark, lake) == []


def test_a_log_that_is_partitioned_by_day_goes_on_as_it_is(spark: SparkSession, lake: Lake) -> None:
    schema = log_schema(spark, ORDERS.revisions)
    delta.create(lake.log(ORDERS.revisions), schema, append_only=True, description="of 0.1", partition_by=(DAY,))
    run(spark, lake, PIPELINE, batch(1))
    run(spark, lake, PIPELINE, batch(2))
    assert delta.partitions(delta.opened(lake.log(ORDERS.revisions))) == [DAY]
    assert rejected(read_log(spark, lake, ORDERS.revisions)).count() == 2
    assert versions(spark, lake) == [2] * DAYS
    assert broken(spark, lake) == []


def test_a_log_of_rows_without_a_key_is_partitioned_by_day(spark: SparkSession, lake: Lake) -> None:
    events = replace(ORDERS, key=(), sequence=None)
    run(spark, lake, Pipeline(events, (replace(BY_MINUTE, of=events),)), batch(1))
    assert delta.partitions(delta.opened(lake.log(events))) == [DAY]

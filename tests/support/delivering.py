"""A small stream with a view, and deliveries of it that a test runs one instant at a time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pyspark.sql import SparkSession

from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Lake,
    Pipeline,
    Rule,
    SessionWindow,
    Stream,
    Tumbling,
    Windowed,
    agg,
)
from streaming.declare.delivery import Delivery
from streaming.deliveries.runtime import DeliveryRuntime
from streaming.service.drain import Drained
from tests.support.instants import NOW, at
from tests.support.runs import run

readings = Stream(
    name="readings",
    source=Files("landing/readings"),
    format=Json("id string, at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("5 seconds", max_ahead="30 days"),
    rules=(Rule("value_present", "value is not null"),),
)
by_id = Windowed(
    "by_id", readings, Tumbling("10 seconds"), {"readings": agg.count(), "total": agg.sum("value")}, by=("id",)
)
visits = Windowed("visits", readings, SessionWindow("8 seconds"), {"readings": agg.count()}, by=("id",))


def reading(id_: str, seconds: float, value: int | None = 1) -> dict[str, Any]:
    return {"id": id_, "at": at(seconds).isoformat(), "value": value}


def pipeline(*deliveries: Delivery) -> Pipeline:
    return Pipeline(readings, (by_id, visits), deliveries=deliveries)


def drained(spark: SparkSession, lake: Lake, delivery: Delivery, batch: list[Any]) -> Drained:
    """Land a batch, and drain the pipeline with the delivery."""
    return run(spark, lake, pipeline(delivery), batch)


def ingested(spark: SparkSession, lake: Lake, *batches: list[Any]) -> None:
    """Land batches, each of the log a batch of its own, and drain the pipeline without any delivery."""
    for batch in batches:
        run(spark, lake, pipeline(), batch)


class Courier:
    """A process that delivers, on a clock that the test turns."""

    def __init__(self, spark: SparkSession, lake: Lake, delivery: Delivery) -> None:
        self.now = NOW
        self._spark = spark
        self.runtime = DeliveryRuntime(delivery, lake, lambda: self.now)

    def wait(self, seconds: float) -> Courier:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)
        return self

    def deliver(self, *, all_of_it: bool = False) -> int:
        """Deliver what is due by now; returns how many batches."""
        batches = 0
        while self.runtime.next_batch(self._spark, all_of_it=all_of_it) is not None:
            self.runtime.deliver(self._spark)
            batches += 1
        return batches

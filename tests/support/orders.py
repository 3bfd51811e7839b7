"""Streams of orders and payments, which are updated and deleted, and of clicks, and rows of these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import SparkSession

from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Stream
from streaming.log import read_log
from tests.support.instants import T0, at
from tests.support.runs import run
from tidemark.testing import land_all

DELAY = 10
"""Seconds that the watermark of each stream is behind its newest row."""

ORDERS = Stream(
    name="orders",
    source=Files("landing/orders"),
    format=Json("id string, version bigint, at timestamp, country string, amount bigint, gone boolean"),
    event_time="at",
    clock=BoundedOutOfOrderness(f"{DELAY} seconds", max_ahead="30 days"),
    key=("id",),
    sequence="version",
    deletes="gone",
)
PAYMENTS = replace(ORDERS, name="payments", source=Files("landing/payments"))
CLICKS = replace(ORDERS, name="clicks", source=Files("landing/clicks"), key=(), sequence=None, deletes=None)


@dataclass(frozen=True)
class Revision:
    """A row of one of the streams, at `seconds` after T0; a delete may have a key and a version alone."""

    id: str
    version: int
    seconds: float | None
    country: str | None
    amount: int | None
    gone: bool = False

    def payload(self) -> dict[str, Any]:
        return {**vars(self), "at": None if self.seconds is None else at(self.seconds).isoformat()}

    @property
    def time(self) -> float:
        """The seconds of a row that has some."""
        assert self.seconds is not None
        return self.seconds


Batches = dict[int, list[Revision]]
"""Rows by the batch of the log that has brought them, in their order."""


def row(id: str, version: int, seconds: float, amount: int = 1, *, country: str = "DE") -> dict[str, Any]:
    """The payload of a row."""
    return Revision(id, version, seconds, country, amount).payload()


def deleted(id: str, version: int) -> dict[str, Any]:
    """The payload of a delete."""
    return Revision(id, version, None, None, None, True).payload()


def run_sides(
    spark: SparkSession,
    lake: Lake,
    pipeline: Pipeline,
    *,
    left: Sequence[dict[str, Any]] = (),
    right: Sequence[dict[str, Any]] = (),
) -> None:
    """Land a batch of the first stream and one of the second, either of which may be empty, and drain the pipeline."""
    for stream, rows in zip(pipeline.streams, (left, right), strict=True):
        if rows:
            land_all(lake, stream, rows)
    run(spark, lake, pipeline)


def came(spark: SparkSession, lake: Lake, stream: Stream, *order: str) -> Batches:
    """The valid rows as their log has cut them into batches, each in the `order` of some columns, else of the origin.

    A kill may have put two of the batches that were sent into one.
    """
    origin = int(T0.timestamp() * 1_000_000)
    columns = ("_batch", "id", "version", f"(unix_micros(at) - {origin}) / 1e6 as seconds", "country", "amount", "gone")
    log = read_log(spark, lake, stream.revisions).where("_rejected is null and _origin is not null")
    batches: Batches = defaultdict(list)
    for each in log.orderBy("_batch", *(order or ("_origin",))).selectExpr(*columns).collect():
        batches[each["_batch"]].append(Revision(*each[1:]))
    return batches

"""What every source owes the other rooms (see `streaming.sources.Source`), as tests that any of them runs through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base.errors import SourceError
from streaming.lake.lake import Lake
from streaming.sources import Source

Batches = dict[int, list[tuple[bytes, dict[str, Any]]]]
"""Payload and origin of each row, by the number of the query's batch."""


class SourceCase(ABC):
    """One kind of source with somebody who delivers into it; a batch takes two deliveries at most."""

    source: Source

    @abstractmethod
    def deliver(self, *payloads: bytes) -> str:
        """Bring the payloads in as one delivery and return the name that texts must call it by."""

    @abstractmethod
    def change(self, name: str) -> None:
        """Change a delivery where it lies."""

    @abstractmethod
    def lose(self, name: str) -> Callable[[], None]:
        """Make a delivery vanish; what is returned puts it back."""

    @abstractmethod
    def remove(self) -> None:
        """Make the source itself vanish."""


class SourceContract:
    """The tests; a subclass gives the fixture `case`."""

    def test_payloads_come_whole_each_in_one_place_until_nothing_waits(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        names = [case.deliver(b"a", b"b"), case.deliver(b"b"), case.deliver(b"\xff", b"a")]
        checkpoint = lake.path("checkpoint")
        backlog = case.source.backlog(lake, checkpoint)
        assert (backlog().items, backlog().warning) == (3 if backlog().unit == "files" else 5, "")

        batches = taken(spark, lake, case.source, checkpoint)
        payloads = [payload for number in sorted(batches) for payload, _ in batches[number]]
        assert payloads == [b"a", b"b", b"b", b"\xff", b"a"]
        assert len(batches) == 2
        for rows in batches.values():
            assert len({tuple(origin.items()) for _, origin in rows}) == len(rows), "an origin is one row's alone"
        assert backlog().items == 0 and str(backlog()).startswith("0 ")

        described = [case.source.describe_batch(checkpoint, number) for number in sorted(batches)]
        assert [[name in words for name in names] for words in described] == [[True, True, False], [False, False, True]]

        origins = spark.createDataFrame(
            [(origin,) for rows in batches.values() for _, origin in rows], f"_origin {case.source.origin}"
        )
        told = origins.select(case.source.partition_of(F.col("_origin")), case.source.time_of(F.col("_origin")))
        assert all(None not in row for row in told.collect())
        assert case.source.compare(spark, lake, origins).changes == ()
        waiting = case.deliver(b"c")
        case.change(names[1])
        changes = {change.kind: change for change in case.source.compare(spark, lake, origins).changes}
        assert {kind: change.name.endswith(name) for (kind, change), name in zip(
            sorted(changes.items()), (names[1], waiting), strict=True
        )} == {"changed": True, "waiting": True}  # fmt: skip
        assert all(change.name in change.text for change in changes.values())

    def test_a_planned_batch_is_the_same_again_or_an_error_that_names_what_is_lost(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        names = [case.deliver(b"a", b"b"), case.deliver(b"b")]
        checkpoint = lake.path("checkpoint")
        first: Batches = {}
        with pytest.raises(Exception, match="the process dies"):
            taken(spark, lake, case.source, checkpoint, into=first, dies=True)

        put_back = case.lose(names[1])
        with pytest.raises(SourceError, match=names[1]):
            case.source.check_batch(spark, checkpoint, 0)
        put_back()
        case.source.check_batch(spark, checkpoint, 0)

        case.deliver(b"c")
        again = taken(spark, lake, case.source, checkpoint)
        assert again[0] == first[0], "what came since is not in it"
        assert [payload for payload, _ in again[1]] == [b"c"]

    def test_a_source_that_is_gone_is_an_error_that_names_it(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        case.deliver(b"a")
        case.source.check_there(spark, lake)
        case.remove()
        for refused in (case.source.check_there, case.source.read):
            with pytest.raises(SourceError, match=case.source.location(lake)):
                refused(spark, lake)


def taken(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    checkpoint: str,
    into: Batches | None = None,
    dies: bool = False,
) -> Batches:
    """Everything that waits, batch by batch; `dies` ends the query with an error before it commits its first batch."""
    batches: Batches = {} if into is None else into

    def take(rows: DataFrame, number: int) -> None:
        located = rows.select(F.col("_raw").cast("binary"), source.located(F.col("_origin")).alias("_origin"))
        batches[number] = [(bytes(row["_raw"]), row["_origin"].asDict()) for row in located.collect()]
        if dies:
            raise RuntimeError("the process dies")

    query = (
        source.read(spark, lake)
        .writeStream.option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(take)
        .start()
    )
    query.awaitTermination()
    return batches

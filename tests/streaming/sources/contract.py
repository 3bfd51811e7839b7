"""What every source owes the other rooms (see `streaming.sources.Source`), as tests that any of them runs through."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming.base.errors import SourceError
from streaming.lake.lake import Lake
from streaming.sources import Memory, Reading, Source, Taken

NOTHING: Memory = MappingProxyType({})

Batches = dict[int, list[tuple[bytes, dict[str, Any]]]]
"""Payload and origin of each row, by the number of the query's batch."""


class SourceCase(ABC):
    """One kind of source with somebody who delivers into it; a batch takes two deliveries, or three rows, at most."""

    source: Source
    memory: Memory = NOTHING
    """What the source remembers before the first delivery."""
    extracts: Source | None = None
    """The source as it is declared where each batch takes one delivery; None where that cannot be."""

    @abstractmethod
    def deliver(self, *payloads: bytes) -> str:
        """Bring the payloads in as one delivery and return what it is called here."""

    @abstractmethod
    def change(self, name: str) -> None:
        """Change a delivery where it lies, or put others in the place of all of them."""

    @abstractmethod
    def lose(self, name: str) -> None:
        """Make a delivery vanish."""

    @abstractmethod
    def remove(self) -> None:
        """Make the source itself vanish."""

    def payload(self, delivered: bytes) -> bytes:
        """What the source makes of a payload that was delivered."""
        return delivered

    def called(self, lake: Lake) -> str:
        """What an error must call the source by."""
        return self.source.location(lake)

    def speaks_of(self, words: str, name: str) -> bool:
        """Whether a text names a delivery."""
        return name in words


class SourceContract:
    """The tests; a subclass gives the fixture `case`."""

    def test_payloads_come_whole_each_in_one_place_until_nothing_waits(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        names = [case.deliver(b"a", b"b"), case.deliver(b"b"), case.deliver(b"\xff", b"a")]
        reader = Reader(spark, lake, case.source, case.memory)
        count = case.source.backlog(lake, reader.checkpoint)
        backlog = count(reader.memory)
        assert (backlog.items, backlog.warning) == (3 if backlog.unit == "files" else 5, "")

        batches = reader.read_on()
        payloads = [payload for number in sorted(batches) for payload, _ in batches[number]]
        assert payloads == [case.payload(delivered) for delivered in (b"a", b"b", b"b", b"\xff", b"a")]
        assert len(batches) == 2
        for rows in batches.values():
            assert len({str(origin) for _, origin in rows}) == len(rows), "an origin is one row's alone"
        backlog = count(reader.memory)
        assert backlog.items == 0 and str(backlog).startswith("0 ") and not backlog.partitions

        described = [case.source.describe_batch(reader.checkpoint, number) for number in sorted(batches)]
        assert [[case.speaks_of(words, name) for name in names] for words in described] == [
            [True, True, False],
            [False, False, True],
        ]

        origins = spark.createDataFrame(
            [(origin,) for rows in batches.values() for _, origin in rows], f"_origin {case.source.origin}"
        )
        attributes = origins.select(case.source.partition_of(F.col("_origin")), case.source.time_of(F.col("_origin")))
        assert all(None not in row for row in attributes.collect())
        assert case.source.compare(spark, lake, origins).changes == ()
        waiting = case.deliver(b"c")
        case.change(names[1])
        changes = {change.kind: change for change in case.source.compare(spark, lake, origins).changes}
        assert {*changes} == {"changed", "waiting"}
        assert all(change.name in change.text for change in changes.values())
        assert case.speaks_of(changes["changed"].text, names[1]) and case.speaks_of(changes["waiting"].text, waiting)

    def test_a_planned_batch_is_the_same_again_or_an_error_that_names_what_is_lost(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        for payloads in ((b"a", b"b"), (b"b",)):
            case.deliver(*payloads)
        reader = Reader(spark, lake, case.source, case.memory)
        first = reader.die()
        case.deliver(b"c")
        again = reader.read_on()
        assert again[0] == first[0], "what came since is not in it"
        assert [payload for payload, _ in again[1]] == [case.payload(b"c")]

        name = case.deliver(b"d")
        assert [payload for payload, _ in reader.die()[2]] == [case.payload(b"d")]
        case.lose(name)
        with pytest.raises(SourceError) as raised:
            reader.take(2)
        assert case.speaks_of(str(raised.value), name)

    def test_a_batch_is_one_delivery_where_the_source_declares_that(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        assert not case.source.batches_are_extracts, "a batch takes two deliveries, or three rows"
        if case.extracts is None:
            return
        assert case.extracts.batches_are_extracts
        deliveries = [(b"a", b"b"), (b"c",), (b"d", b"e")]
        for payloads in deliveries:
            case.deliver(*payloads)
        batches = Reader(spark, lake, case.extracts, case.memory).read_on()
        assert [tuple(payload for payload, _ in batches[number]) for number in sorted(batches)] == deliveries

    def test_a_source_that_is_gone_is_an_error_that_names_it(
        self, spark: SparkSession, lake: Lake, case: SourceCase
    ) -> None:
        case.deliver(b"a")
        reader = Reader(spark, lake, case.source, case.memory)
        case.source.check_there(spark, reader.reading)
        case.remove()
        for refused in (case.source.check_there, case.source.read):
            with pytest.raises(SourceError, match=re.escape(case.called(lake))):
                refused(spark, reader.reading)


class Reader:
    """A query over a source, which remembers what the source wants remembered, as the log does."""

    def __init__(self, spark: SparkSession, lake: Lake, source: Source, memory: Memory = NOTHING) -> None:
        self._spark = spark
        self._lake = lake
        self._source = source
        origin = spark.range(0).select(F.expr(f"cast(null as {source.origin})"))
        self._origin_type = origin.schema[0].dataType.simpleString()
        self.checkpoint = lake.path("checkpoint")
        self.memory = memory

    @property
    def reading(self) -> Reading:
        return Reading(self._lake, self.checkpoint, self.memory)

    def read_on(self) -> Batches:
        """Everything that waits, batch by batch."""
        return self._run(dies=False)

    def die(self) -> Batches:
        """The next batch; the query ends with an error before it commits it."""
        batches: Batches = {}
        with pytest.raises(Exception, match="the process dies"):
            self._run(dies=True, batches=batches)
        return batches

    def take(self, number: int) -> Taken:
        """What the source makes of a planned batch, whatever rows Spark has for it."""
        rows = self._spark.createDataFrame([], f"_raw binary, _origin {self._source.origin}")
        return self._source.take(self._spark, self.reading, number, rows)

    def _run(self, dies: bool, batches: Batches | None = None) -> Batches:
        rows_by_number: Batches = {} if batches is None else batches
        partition = self._source.partition_of(F.col("_origin")).alias("partition")

        def take(rows: DataFrame, number: int) -> None:
            taken = self._source.take(self._spark, self.reading, number, rows)
            located = taken.rows().select(F.col("_raw").cast("binary"), "_origin", partition)
            # Heartbeats are written with the declared type, into the same table.
            assert located.schema["_origin"].dataType.simpleString() == self._origin_type
            kept = located.collect()
            assert not taken.parts or _read(taken) == sorted(map(_without_position, located.toArrow().to_pylist()))
            rows_by_number[number] = [(bytes(row["_raw"]), row["_origin"].asDict()) for row in kept]
            if dies:
                raise RuntimeError("the process dies")
            self.memory = taken.remember(lambda: located, Counter(row["partition"] for row in kept))
            taken.committed()

        query = (
            self._source.read(self._spark, self.reading)
            .writeStream.option("checkpointLocation", self._source.checkpoint(self.checkpoint, self.memory))
            .trigger(availableNow=True)
            .foreachBatch(take)
            .start()
        )
        query.awaitTermination()
        return rows_by_number


def _read(taken: Taken) -> list[str]:
    """The payloads that Python workers read of a batch, with their origins."""
    batches = (batch for group in taken.parts for part in group for batch in part.batches())
    return sorted(_without_position(row) for batch in batches for row in batch.to_pylist())


def _without_position(row: dict[str, Any]) -> str:
    """A row as text, but for its place in the batch, which nobody else has."""
    told = {name: value for name, value in row["_origin"].items() if name != "position"}
    return f"{row['_raw']!r} {sorted(told.items())}"

"""Golden test of a source of one's own, written with nothing but the contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streaming import (
    BoundedOutOfOrderness,
    Json,
    Lake,
    OffsetReader,
    OffsetSource,
    Pipeline,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
    log,
)
from streaming.base.errors import SourceError
from streaming.sources import Memory, Offsets, SourceBacklog, SourceComparison
from tests.support.instants import NOW, at
from tests.support.runs import run, tuples

Piece = tuple[int, dict[str, tuple[int, int]]]
"""The number of a reader, and of each of its partitions the lines from and to."""


@dataclass(frozen=True)
class MetersReader(OffsetReader):
    """Six files, one a meter, to which lines are only added; `readers` tasks read them side by side."""

    folder: str
    readers: int

    @property
    def schema(self) -> str:
        return "_raw binary, path string, line bigint, reader int"

    @property
    def rows_per_batch(self) -> int:
        return 1_000

    def first(self) -> Offsets:
        return {}

    def newest(self, begins: Offsets) -> Offsets:
        return {file.name: len(file.read_text().splitlines()) for file in sorted(Path(self.folder).iterdir())}

    def bounded(self, begins: Offsets, newest: Offsets, rows: int) -> Offsets:
        return newest

    def pieces(self, begins: Offsets, ends: Offsets) -> Sequence[Piece]:
        ranges = [(name, (begins.get(name, 0), end)) for name, end in ends.items()]
        return [(number, dict(ranges[number :: self.readers])) for number in range(self.readers)]

    def read(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        number, ranges = piece
        rows = [
            {"_raw": text.encode(), "path": name, "line": line, "reader": number}
            for name, (first, end) in ranges.items()
            for line, text in enumerate(Path(self.folder, name).read_text().splitlines())
            if first <= line < end
        ]
        types = {"_raw": pa.binary(), "path": pa.string(), "line": pa.int64(), "reader": pa.int32()}
        yield pa.RecordBatch.from_pylist(rows, schema=pa.schema(list(types.items())))


@dataclass(frozen=True)
class Meters(OffsetSource):
    """The files as a source; each is a source partition of the clock."""

    readers: int = 2

    origin: ClassVar[str] = "struct<path: string, line: bigint, reader: int>"

    def location(self, lake: Lake) -> str:
        return lake.path("landing/meters")

    def reader(self, lake: Lake, memory: Memory) -> OffsetReader:
        if not Path(self.location(lake)).is_dir():
            raise SourceError(f"there are no meters in {self.location(lake)!r}.")
        return MetersReader(self.location(lake), self.readers)

    @property
    def partitioned(self) -> bool:
        return True

    @property
    def larger_batches(self) -> str:
        return "read less often"

    def partition_of(self, origin: Column) -> Column:
        return origin["path"]

    def time_of(self, origin: Column) -> Column:
        return F.current_timestamp()

    def words(self, begins: Offsets, ends: Offsets) -> str:
        return ", ".join(f"{name} lines {begins.get(name, 0)} to {end - 1}" for name, end in ends.items())

    def waiting(self, lake: Lake, memory: Memory, begins: Offsets) -> SourceBacklog:
        newest = self.reader(lake, memory).newest(begins)
        return SourceBacklog(sum(newest.values()) - sum(begins.values()), "rows")

    def compare(self, spark: SparkSession, lake: Lake, origins: DataFrame) -> SourceComparison:
        return SourceComparison(origins.count(), "lines")


meters = Stream(
    "meters",
    Meters(),
    Json("at timestamp, value bigint"),
    event_time="at",
    clock=BoundedOutOfOrderness("0 seconds", idle_after="1 minute"),
)


def piped(stream: Stream) -> Pipeline:
    return Pipeline(stream, (Windowed("by_hour", stream, Tumbling("1 hour"), {"rows": agg.count()}),))


def measure(lake: Lake, lines: Mapping[int, Sequence[int]]) -> None:
    """Each meter writes a line for each of its seconds."""
    folder = Path(lake.path("landing/meters"))
    folder.mkdir(parents=True, exist_ok=True)
    for meter, seconds in lines.items():
        with (folder / f"m{meter}").open("a") as file:
            file.writelines(f'{{"at": "{at(second).isoformat()}", "value": {second}}}\n' for second in seconds)


@pytest.mark.long
def test_s5_each_of_six_partitions_has_one_reader_also_when_two_become_three(spark: SparkSession, lake: Lake) -> None:
    measure(lake, {meter: [1, 2] for meter in range(6)})
    run(spark, lake, piped(meters))
    measure(lake, {meter: [3] for meter in range(5)})
    three = replace(meters, source=Meters(readers=3))
    assert three.source.backlog(lake, lake.checkpoint(three, log.QUERY))({}).items == 5
    run(spark, lake, piped(three))

    rows = log.valid(log.read_log(spark, lake, three))
    readers = rows.groupBy("_batch", "_origin.path").agg(F.collect_set("_origin.reader").alias("readers"))
    by_batch: dict[int, dict[str, list[int]]] = {}
    for row in readers.collect():
        by_batch.setdefault(row["_batch"], {})[row["path"]] = row["readers"]
    assert by_batch == {
        0: {f"m{meter}": [meter % 2] for meter in range(6)},
        1: {f"m{meter}": [meter % 3] for meter in range(5)},
    }
    lines = [(f"m{meter}", line) for meter in range(6) for line in range(3 if meter < 5 else 2)]
    assert tuples(rows, "_origin.path", "_origin.line") == lines, "no line is lost, and none comes twice"

    newest, first = log.read_batches(lake, three)
    assert newest.source["offsets"] == {**{f"m{meter}": 3 for meter in range(5)}, "m5": 2}
    assert first.source["offsets"] == {f"m{meter}": 2 for meter in range(6)}
    assert newest.after.watermark == at(2), "the silent partition holds the clock"
    measure(lake, {meter: [4] for meter in range(5)})
    drain(spark, lake, piped(three), now=lambda: NOW + timedelta(minutes=2))
    assert log.read_batches(lake, three)[0].after.watermark == at(4), "until it is taken for idle"

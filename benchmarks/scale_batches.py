"""The cost of a batch for one driver, in one process: `python -m benchmarks.scale_batches WORK SERVERS RESULT`.

Rows per batch stay the same; what is changed is of how many files or partitions they come, how many files have been
taken before, and how many streams the driver has. A drain of many batches less one of few, which cancels what a query
costs to start; then the step of a view over a single batch. SERVERS is a Kafka broker, whose own work does not count.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from benchmarks.compare.data import Expected, Shape, files
from benchmarks.compare.declared import DELAY, FIELDS
from benchmarks.processes import cpu_seconds
from streaming import (
    BoundedOutOfOrderness,
    Files,
    Json,
    Kafka,
    Lake,
    Pipeline,
    Selected,
    Stream,
    Tumbling,
    Windowed,
    agg,
    drain,
)
from streaming.base import utc_now
from streaming.operators import runtime_of
from streaming.sources import Source
from streaming.spark import start_session
from tests.support.kafka import Administered

ROWS = 1_000
FILES, PARTITIONS, STREAMS, TAKEN = (1, 10, 100), (1, 8, 64), (4,), (5_000,)
_FEW, _MANY, _ROUNDS = 2, 10, 3
_STEPS = 9


class Landed:
    """Batches of `ROWS` rows in so many files each, for so many streams of a lake."""

    def __init__(self, spark: SparkSession, folder: Path, a_batch: int, streams: int = 1) -> None:
        self.lake = Lake(str(folder))
        self.streams = [_stream(f"readings_{number}", Files(f"in/{number}", a_batch)) for number in range(streams)]
        self._spark, self._a_batch = spark, a_batch
        # Two seconds of event time a batch, whatever it is cut into.
        self._made = files(Shape(10**9, a_file=ROWS // a_batch, a_second=ROWS / 2), Expected())
        self._number = 0

    def land(self, batches: int) -> None:
        """The files of so many batches, for each stream the same."""
        for _ in range(batches * self._a_batch):
            self._put("".join(next(self._made)))

    def take_before(self, taken: int) -> None:
        """So many files of one row that were taken by a single batch."""
        line = next(self._made)[0]
        for _ in range(taken):
            self._put(line)
        (first, *_) = self.streams
        assert isinstance(first.source, Files)
        self._drain([replace(first, source=replace(first.source, files_per_batch=taken))])

    def drain(self) -> None:
        """Into the logs, and nothing else."""
        self._drain(self.streams)

    def step_costs(self) -> Iterator[float]:
        """CPU seconds of the step of a view that follows a batch and closes the windows of one, again and again."""
        view = Windowed("per_window", self.streams[0], Tumbling("2 seconds"), {"readings": agg.count()}, by=("id",))
        runtime = runtime_of(view, self.lake)
        while True:
            self.land(1)
            self.drain()
            before = cpu_seconds()
            for step in runtime.steps(self._spark, utc_now):
                step.run()
            yield cpu_seconds() - before

    def _put(self, text: str) -> None:
        for stream in self.streams:
            folder = Path(stream.source.location(self.lake))
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{self._number:07}.json").write_text(text)
        self._number += 1

    def _drain(self, streams: Sequence[Stream]) -> None:
        drain(self._spark, self.lake, _pipeline(streams))


def _stream(name: str, source: Source) -> Stream:
    return Stream(name, source, Json(FIELDS), "at", BoundedOutOfOrderness(DELAY))


def _pipeline(streams: Sequence[Stream]) -> Pipeline:
    # A pipeline has an operator, and this one has nothing to do but once at the end.
    nothing = Selected("nothing", streams[0], where="false")
    return Pipeline(name="batches", streams=tuple(streams), operators=(nothing,))


def cost(land: Callable[[int], None], drained: Callable[[], None]) -> float:
    """CPU seconds of a batch more, the median of some rounds."""

    def burnt(batches: int) -> float:
        land(batches)
        before = cpu_seconds()
        drained()
        return cpu_seconds() - before

    rounds = [(burnt(_MANY) - burnt(_FEW)) / (_MANY - _FEW) for _ in range(_ROUNDS)]
    return statistics.median(rounds)


def of_files(spark: SparkSession, work: Path) -> Iterator[tuple[str, float]]:
    """The cost of a batch by its files, by files taken before it, and by the streams beside it."""
    for a_batch in FILES:
        landed = Landed(spark, work / f"{a_batch}-files", a_batch)
        yield f"{a_batch} {'file' if a_batch == 1 else 'files'}", cost(landed.land, landed.drain)
    for taken in TAKEN:
        landed = Landed(spark, work / f"{taken}-taken", 1)
        landed.take_before(taken)
        yield f"1 file, {taken:,} others in the folder", cost(landed.land, landed.drain)
    for streams in STREAMS:
        landed = Landed(spark, work / f"{streams}-streams", 1, streams)
        yield f"1 file, each of {streams} streams", cost(landed.land, landed.drain) / streams


class Sent:
    """Batches of `ROWS` rows in a topic of so many partitions."""

    def __init__(self, spark: SparkSession, folder: Path, servers: str, partitions: int) -> None:
        self._spark, self._servers, self._partitions = spark, servers, partitions
        self._lake, self._topic = Lake(str(folder)), folder.name
        broker = Administered()
        broker.servers, broker.admin = servers, AdminClient({"bootstrap.servers": servers})
        broker.create(self._topic, partitions)
        self._stream = _stream("readings", Kafka(servers, topic=self._topic, rows_per_batch=ROWS))
        self._made = files(Shape(10**9, a_file=ROWS, a_second=ROWS / 2), Expected())

    def land(self, batches: int) -> None:
        """So many batches, each partition as full as the others."""
        producer = Producer({"bootstrap.servers": self._servers, "log_level": 0})
        for _ in range(batches):
            for number, line in enumerate(next(self._made)):
                producer.produce(self._topic, line.encode(), partition=number % self._partitions)
        if producer.flush(60):
            raise RuntimeError("the broker did not take all rows")

    def drain(self) -> None:
        """Into the log, and nothing else."""
        drain(self._spark, self._lake, _pipeline([self._stream]))


def of_partitions(spark: SparkSession, work: Path, servers: str) -> Iterator[tuple[str, float]]:
    """The cost of a batch by the partitions of its topic."""
    for partitions in PARTITIONS:
        sent = Sent(spark, work / f"partitions-{partitions}", servers, partitions)
        yield f"{partitions} Kafka {'partition' if partitions == 1 else 'partitions'}", cost(sent.land, sent.drain)


def main() -> None:
    """Warm up, measure, and write CPU seconds by what was measured."""
    work, servers, result = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    spark = start_session()
    warm = Landed(spark, work / "warm", 1)
    warm.land(2 * _MANY)
    warm.drain()
    seconds = dict(of_files(spark, work))
    costs = warm.step_costs()
    steps = [next(costs) for _ in range(2 * _STEPS)]
    seconds["the step of a view"] = statistics.median(steps[_STEPS:])
    seconds |= dict(of_partitions(spark, work, servers))
    result.write_text(json.dumps(seconds))


if __name__ == "__main__":
    main()

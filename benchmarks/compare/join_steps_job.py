"""What a step of a join costs: `python -m benchmarks.compare.join_steps_job WORK SHORT LONG RESULT`.

Both logs of a lake have SHORT batches, those of another one LONG. The first batch is ingested; the others are that one
again, later in event time, written without a stream that would take hours. One row of each is hours late. Then single
batches come in turn, each followed by a step: usual ones in both lakes, and some with a row that is a week late.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.compare.data import Shape, generate
from benchmarks.compare.joins_job import joined
from streaming import Lake, Stream, drain
from streaming.base.intervals import utc_now
from streaming.clocks.state import BatchSummary
from streaming.log import Batch, head
from streaming.operators.runtime import OperatorRuntime, runtime_of
from streaming.spark.session import start_session
from streaming.tables import TaskFiles, delta

A_BATCH = 1_000
_LASTS = timedelta(minutes=10)
_WEEK = timedelta(days=7)
_HOURS_LATE = 12
WARM, ROUNDS = 8, 15


class GrowingLog:
    """The log of one stream, whose first batch is there."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self._uri, self._stream = lake.log(stream), stream
        rows = DeltaTable(self._uri).to_pyarrow_table()
        self._first = rows.filter(pc.is_valid(rows["_day"])).drop_columns(["_day"]).combine_chunks()
        newest = head(lake, stream)
        assert newest is not None
        self._newest = newest
        self._drawn = random.Random(stream.name)

    def append(self, late_by: timedelta | None = None) -> None:
        """One batch more, of which one row is late: by some hours, unless it is said by how much."""
        number, state = self._newest.number + 1, self._newest.after
        late = late_by or timedelta(hours=self._drawn.uniform(0, _HOURS_LATE))
        rows = self._with_times(number, late)
        stamp = pa.scalar(state.watermark, rows.schema.field("_watermark").type)
        for name, value in (("_batch", pa.scalar(number, pa.int64())), ("_watermark", stamp)):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(name), pa.repeat(value, len(rows)))
        greatest = pc.max(rows[self._stream.event_time]).as_py()
        summary = BatchSummary({"": greatest}, len(rows), utc_now())
        batch = Batch(number, "made", number, state, summary, self._stream.clock)
        self._write(rows, batch)
        self._newest = batch

    def _with_times(self, number: int, late: timedelta) -> pa.Table:
        times = self._first[self._stream.event_time]
        behind = pa.array([late] + [timedelta()] * (len(times) - 1), pa.duration("us"))
        moved = pc.subtract(pc.add(times, pa.scalar(number * _LASTS, pa.duration("us"))), behind)
        place = self._first.schema.get_field_index(self._stream.event_time)
        return self._first.set_column(place, self._first.schema.field(place), moved)

    def _write(self, rows: pa.Table, batch: Batch) -> None:
        days = pc.cast(rows[self._stream.event_time], pa.date32())
        files = TaskFiles(self._uri, rows.schema, (self._stream.event_time, "_batch"))
        for day in pc.unique(days):
            for part in rows.filter(pc.equal(days, day)).combine_chunks().to_batches():
                files.write(part, day.as_py())
        delta.commit_files(self._uri, files.close(), metadata=batch.to_json(), numbers={}, fence=lambda table: None)


class Followed:
    """A lake with two logs of so many batches, which the join has followed."""

    def __init__(self, spark: SparkSession, work: Path, batches: int) -> None:
        shape = Shape(A_BATCH, a_file=A_BATCH, a_second=A_BATCH / _LASTS.total_seconds())
        left, right = (generate(work / "data", replace(shape, seed=seed))[0] for seed in (2013, 2014))
        lake, (pipeline, pairs) = Lake(str(work / f"{batches}-batches")), joined(left, right, 1)
        drain(spark, lake, pipeline)
        self._spark = spark
        self._logs = [GrowingLog(lake, stream) for stream in pipeline.streams]
        self._runtime: OperatorRuntime = runtime_of(pairs, lake)
        for _ in range(batches - 1):
            self._append()
        self._step()

    def seconds(self, late_by: timedelta | None = None) -> float:
        """What the step takes that follows a batch more of each log."""
        self._append(late_by)
        started = time.monotonic()
        self._step()
        return time.monotonic() - started

    def _append(self, late_by: timedelta | None = None) -> None:
        for log in self._logs:
            log.append(late_by)

    def _step(self) -> None:
        for step in self._runtime.steps(self._spark, utc_now):
            step.run()


def main() -> None:
    """Build both lakes, then time steps in turn; the first rounds warm up and do not count."""
    work, short, long, result = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    spark = start_session()
    few, many = (Followed(spark, work, batches) for batches in (short, long))
    took: dict[str, list[float]] = {"short": [], "long": [], "late": []}
    for round_ in range(WARM + ROUNDS):
        seconds = {"short": few.seconds(), "long": many.seconds(), "late": many.seconds(_WEEK)}
        if round_ >= WARM:
            for name, each in seconds.items():
                took[name].append(each)
    result.write_text(json.dumps(took))


if __name__ == "__main__":
    main()

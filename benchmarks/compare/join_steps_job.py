"""The cost of a step of a join: `python -m benchmarks.compare.join_steps_job WORK SHORT LONG RESULT`.

Both logs of a lake have SHORT batches, those of another one LONG. The first batch is ingested; the others are that one
again, later in event time, written without a stream that would take hours. One row of each is hours late. Then single
batches come in turn, each followed by a step: usual ones in both lakes, and some with a row that is a week late.
"""

from __future__ import annotations

import json
import random
import re
import sys
import time
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from benchmarks.compare.data import Shape, generate
from benchmarks.compare.joins_job import joined
from benchmarks.processes import cpu_seconds
from streaming import Lake, Stream, drain
from streaming.base.intervals import utc_now
from streaming.clocks.clock import BatchSummary
from streaming.log import Batch, head
from streaming.operators.runtime import OperatorRuntime, runtime_of
from streaming.spark.session import start_session
from streaming.tables import TaskFile, TaskFiles, delta

A_BATCH = 1_000
_LASTS = timedelta(minutes=10)
_WEEK = timedelta(days=7)
_HOURS_LATE = 12
_CHECKPOINT_EVERY = 200
WARM, ROUNDS = 8, 15


class GrowingLog:
    """The log of one stream, whose first batch is there."""

    def __init__(self, lake: Lake, stream: Stream) -> None:
        self._uri, self._stream = lake.log(stream), stream
        rows = DeltaTable(self._uri).to_pyarrow_table(filters=[("_batch", "=", 0)])
        self._first = rows.filter(pc.is_valid(rows["_day"])).drop_columns(["_day"]).combine_chunks()
        newest = head(lake, stream)
        assert newest is not None
        self._newest = newest
        self._drawn = random.Random(stream.name)

    def append(self, late_by: timedelta | None = None) -> None:
        """One batch more, of which one row is late: by some hours, unless it is said by how much."""
        batch, files = self._made(late_by or timedelta(hours=self._drawn.uniform(0, _HOURS_LATE)))
        delta.commit_files(self._uri, files, says=batch.to_json(), numbers={}, fence=lambda table: None)

    def grow(self, batches: int) -> None:
        """So many batches more, as entries of the Delta log, which are written faster than commits are made."""
        version = DeltaTable(self._uri).version()
        for number in range(version + 1, version + 1 + batches):
            batch, files = self._made(timedelta(hours=self._drawn.uniform(0, _HOURS_LATE)))
            info = {"timestamp": int(time.time() * 1000), "operation": "WRITE"}
            actions: list[dict[str, Any]] = [{"commitInfo": info | {"userMetadata": json.dumps(batch.to_json())}}]
            actions += [{"add": _camel(asdict(file.action()))} for file in files]
            entry = Path(self._uri, "_delta_log", f"{number:020}.json")
            entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
            if number % _CHECKPOINT_EVERY == 0:
                DeltaTable(self._uri).create_checkpoint()

    def _made(self, late_by: timedelta) -> tuple[Batch, list[TaskFile]]:
        """The next batch, and its files, which are in no commit yet."""
        number, state = self._newest.number + 1, self._newest.after
        rows = self._with_times(number, late_by)
        stamp = pa.scalar(state.watermark, rows.schema.field("_watermark").type)
        for name, value in (("_batch", pa.scalar(number, pa.int64())), ("_watermark", stamp)):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(place, rows.schema.field(name), pa.repeat(value, len(rows)))
        greatest = pc.max(rows[self._stream.event_time]).as_py()
        summary = BatchSummary({"": greatest}, len(rows), utc_now())
        self._newest = Batch(number, "made", number, state, summary, self._stream.clock)
        return self._newest, self._written(rows)

    def _with_times(self, number: int, late: timedelta) -> pa.Table:
        times = self._first[self._stream.event_time]
        behind = pa.array([late] + [timedelta()] * (len(times) - 1), pa.duration("us"))
        moved = pc.subtract(pc.add(times, pa.scalar(number * _LASTS, pa.duration("us"))), behind)
        place = self._first.schema.get_field_index(self._stream.event_time)
        return self._first.set_column(place, self._first.schema.field(place), moved)

    def _written(self, rows: pa.Table) -> list[TaskFile]:
        days = pc.cast(rows[self._stream.event_time], pa.date32())
        files = TaskFiles(self._uri, rows.schema, (self._stream.event_time, "_batch"))
        for day in pc.unique(days):
            for part in rows.filter(pc.equal(days, day)).combine_chunks().to_batches():
                files.write(part, day.as_py())
        return files.close()


def _camel(action: dict[str, Any]) -> dict[str, Any]:
    """The names of an action's fields as entries of the Delta log have them."""
    return {re.sub("_([a-z])", lambda match: match[1].upper(), name): value for name, value in action.items()}


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
        for log in self._logs:
            log.grow(batches - 1)
        self._step()

    def cpu(self, late_by: timedelta | None = None) -> float:
        """CPU seconds of the step that follows a batch more of each log."""
        for log in self._logs:
            log.append(late_by)
        before = cpu_seconds()
        self._step()
        return cpu_seconds() - before

    def _step(self) -> None:
        for step in self._runtime.steps(self._spark, utc_now):
            step.run()


def main() -> None:
    """Build both lakes, then measure steps in turn; the first rounds warm up and do not count."""
    work, short, long, result = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    spark = start_session()
    few, many = (Followed(spark, work, batches) for batches in (short, long))
    burnt: dict[str, list[float]] = {"short": [], "long": [], "late": []}
    for round_ in range(WARM + ROUNDS):
        of_round = {"short": few.cpu(), "long": many.cpu(), "late": many.cpu(_WEEK)}
        if round_ >= WARM:
            for name, each in of_round.items():
                burnt[name].append(each)
    result.write_text(json.dumps(burnt))


if __name__ == "__main__":
    main()

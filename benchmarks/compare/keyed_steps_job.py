"""Steps over keys: `python -m benchmarks.compare.keyed_steps_job NAME DATA WORK WARM STEPS RESULT`.

Every contender takes one batch after the other: the first has a row of each key, WARM more warm up, and of the STEPS
after those the CPU is counted, of the process and all it has started. Tidemark reads them from an event log, Spark from
Parquet files, a file a batch; all write what they tell to a Delta table, but for one that says so. `prepare` makes the
data of so many steps.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import DoubleType, StructField, StructType

from benchmarks.compare.jumps import FAR, counted_and_summed, jumps_of
from benchmarks.compare.rocksdb import keep_state_in_rocksdb
from benchmarks.processes import cpu_seconds
from streaming import BoundedOutOfOrderness, Files, Json, Lake, Pipeline, Selected, Stream, drain
from streaming.base.intervals import utc_now
from streaming.keyed.steps import KeyedSteps
from streaming.spark.session import start_session

KEYS, ROWS = 100_000, 20_000
_BUCKETS = 4
"""As many as Tidemark has of so few keys."""
_FIELDS = "id bigint, at timestamp, value double"
_TOLD = "id bigint, at timestamp, value double, jump double"
_BEGIN = 1_767_225_600_000_000
_LOOKS_EVERY = 0.1

readings = Stream(
    "readings",
    Files("landing/readings", files_per_batch=1),
    Json("id bigint not null, at timestamp not null, value double"),
    "at",
    BoundedOutOfOrderness("0 seconds"),
)
jumps = jumps_of(readings)


def prepare(data: Path, steps: int) -> None:
    """A row of each key and the rows of so many steps, as files of Parquet and in the log of a lake."""
    lake, drawn = Lake(str(data / "lake")), random.Random(KEYS)
    rows, landing = data / "rows", Path(readings.source.location(lake))
    for folder in (rows, landing):
        folder.mkdir(parents=True)
    ids = [list(range(KEYS)), *([drawn.randrange(KEYS) for _ in range(ROWS)] for _ in range(steps))]
    now = _BEGIN
    for number, of_batch in enumerate(ids):
        times = list(range(now, now + len(of_batch)))
        now += len(of_batch)
        values = [drawn.randrange(4_000) / 4 for _ in of_batch]
        columns = [pa.array(of_batch), pa.array(times, pa.timestamp("us", "UTC")), pa.array(values)]
        table = pa.table(columns, names=["id", "at", "value"])
        pq.write_table(table, rows / f"{number:05}.parquet")
        texts = [text.replace(" ", "T") for text in table["at"].cast(pa.string()).to_pylist()]
        lines = (
            json.dumps({"id": each, "at": text, "value": value})
            for each, text, value in zip(of_batch, texts, values, strict=True)
        )
        (landing / f"{number:05}.json").write_text("\n".join(lines))
        # Both read the oldest file first.
        for path in (rows / f"{number:05}.parquet", landing / f"{number:05}.json"):
            os.utime(path, (number, number))
    drain(start_session(), lake, Pipeline(readings, (Selected("nothing", readings, where="false"),)))


def tidemark(data: Path, work: Path, warm: int, steps: int) -> tuple[float, DataFrame]:
    """Steps over the log; returns the CPU seconds of one, and the results."""
    shutil.copytree(data / "lake", work / "lake")
    lake = Lake(str(work / "lake"))
    spark = start_session()
    keyed, begun = KeyedSteps(spark, lake, jumps), 0.0
    for number, batches in enumerate(islice(keyed.pieces(ROWS), 1 + warm + steps)):
        if number == 1 + warm:
            begun = cpu_seconds()
        keyed.step(batches, utc_now)
    return (cpu_seconds() - begun) / steps, spark.read.format("delta").load(lake.table(jumps))


def blobs(data: Path, work: Path, warm: int, steps: int, to: str = "delta") -> tuple[float, DataFrame]:
    """Spark's older state in Python, by hand: few groups, each with all its keys in one pickled value."""

    def query(rows: DataFrame) -> DataFrame:
        return (
            rows.withColumn("bucket", F.expr(f"pmod(xxhash64(id), {_BUCKETS})"))
            .groupBy("bucket")
            .applyInPandasWithState(_bucket_folded, _TOLD, "blob binary", "append", GroupStateTimeout.NoTimeout)
        )

    return _streamed(query, data, work, warm, steps, to)


def _bucket_folded(_: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    previous = pickle.loads(state.get[0]) if state.exists else {}
    heights: dict[int, float] = {}
    # Spark promises no order within a group.
    rows = pd.concat(list(frames)).sort_values("at")
    for place, (key, value) in enumerate(zip(rows["id"].tolist(), rows["value"].tolist(), strict=True)):
        before = previous.get(key)
        if before is not None and abs(value - before) > FAR:
            heights[place] = abs(value - before)
        previous[key] = value
    state.update((pickle.dumps(previous),))
    if heights:
        yield rows.iloc[list(heights)][["id", "at", "value"]].assign(jump=list(heights.values()))


def per_key(data: Path, work: Path, warm: int, steps: int) -> tuple[float, DataFrame]:
    """Spark's newer state in Python, as it is meant: a value of each key."""

    def query(rows: DataFrame) -> DataFrame:
        return rows.groupBy("id").transformWithState(_Jumps(), _TOLD, "append", "none")

    return _streamed(query, data, work, warm, steps)


class _Jumps(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self._previous = handle.getValueState("previous", StructType([StructField("value", DoubleType())]))

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:
        kept = self._previous.get()
        before = None if kept is None else kept[0]
        for row in sorted(rows, key=lambda row: row.at):
            if before is not None and abs(row.value - before) > FAR:
                yield Row(id=key[0], at=row.at, value=row.value, jump=abs(row.value - before))
            before = row.value
        self._previous.update((before,))

    def close(self) -> None:
        """There is nothing to close."""


def _streamed(
    query: Callable[[DataFrame], DataFrame], data: Path, work: Path, warm: int, steps: int, to: str = "delta"
) -> tuple[float, DataFrame]:
    spark = start_session()
    keep_state_in_rocksdb(spark)
    (work / "rows").mkdir()
    for path in sorted((data / "rows").iterdir())[: 1 + warm + steps]:
        (work / "rows" / path.name).hardlink_to(path)
    rows = spark.readStream.schema(_FIELDS).option("maxFilesPerTrigger", 1).parquet(str(work / "rows"))
    running = (
        query(rows)
        .writeStream.format(to)
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "jumps"))
    )
    begun: tuple[int, float] | None = None
    newest = -1
    while running.isActive:
        progress = running.lastProgress
        if progress is not None and progress["batchId"] != newest:
            newest = progress["batchId"]
            if begun is None and newest >= warm:
                begun = newest, cpu_seconds()
        time.sleep(_LOOKS_EVERY)
    spent = cpu_seconds()
    running.awaitTermination()
    assert begun is not None
    return (spent - begun[1]) / (warm + steps - begun[0]), spark.read.format(to).load(str(work / "jumps"))


CONTENDERS: dict[str, Callable[[Path, Path, int, int], tuple[float, DataFrame]]] = {
    "tidemark": tidemark,
    "blobs": blobs,
    "blobs_to_parquet": partial(blobs, to="parquet"),
    "per_key": per_key,
}


def main() -> None:
    """Run one contender, or prepare."""
    name, data, work, warm, steps, result = sys.argv[1:]
    if name == "prepare":
        prepare(Path(data), int(warm) + int(steps))
        Path(result).write_text("{}")
        return
    cpu, jumps = CONTENDERS[name](Path(data), Path(work), int(warm), int(steps))
    Path(result).write_text(json.dumps({"cpu": cpu, "told": counted_and_summed(jumps)}))


if __name__ == "__main__":
    main()

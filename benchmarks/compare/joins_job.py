"""The interval join as a program: `python -m benchmarks.compare.joins_job NAME LEFT RIGHT WORK FILES_PER_BATCH RESULT`.

All contenders join all rows of two folders that have one id and lie within four seconds of each other, late ones too.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.compare.data import LATE_BY, OUT_OF_ORDER
from benchmarks.compare.declared import FIELDS, PLAUSIBLE, declared
from benchmarks.compare.rocksdb import keep_state_in_rocksdb
from streaming import Joined, Lake, Pipeline, drain
from streaming.declare.join_keys import JoinKind
from streaming.spark.session import start_session

_NEAR = "4 seconds"


def joined(left: Path, right: Path, files_per_batch: int, kind: JoinKind = "inner") -> tuple[Pipeline, Joined]:
    """The task as Tidemark declares it."""
    ours, theirs = (
        replace(declared(str(folder), files_per_batch).stream, name=name)
        for name, folder in (("ours", left), ("theirs", right))
    )
    columns = ("id", "left_value", "right_value")
    pairs = Joined("pairs", ours, theirs, ("id",), (f"-{_NEAR}", _NEAR), kind, columns)
    return Pipeline(name="joins", streams=(ours, theirs), operators=(pairs,)), pairs


def tidemark(left: Path, right: Path, work: Path, files_per_batch: int, *, kind: JoinKind) -> DataFrame:
    """Both logs, and the pairs; of an outer join also the rows that had no partner in time, in a table of their own."""
    pipeline, pairs = joined(left, right, files_per_batch, kind)
    lake, spark = Lake(str(work)), start_session()
    drain(spark, lake, pipeline)
    return spark.read.format("delta").load(lake.table(pairs))


def spark_join(left: Path, right: Path, work: Path, files_per_batch: int) -> DataFrame:
    """The pairs by Spark's own join of two streams, whose watermark waits for all that is late."""
    spark = start_session()
    keep_state_in_rocksdb(spark)
    ours, theirs = _side(spark, left, files_per_batch, "left"), _side(spark, right, files_per_batch, "right")
    near = F.expr(
        f"left_id = right_id and right_at >= left_at - interval {_NEAR} and right_at <= left_at + interval {_NEAR}"
    )
    query = (
        ours.join(theirs, near)
        .select("left_id", "left_value", "right_value")
        .writeStream.format("delta")
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(work / "pairs"))
    )
    query.awaitTermination()
    return spark.read.format("delta").load(str(work / "pairs"))


def _side(spark: SparkSession, folder: Path, files_per_batch: int, name: str) -> DataFrame:
    text = spark.readStream.option("maxFilesPerTrigger", files_per_batch).text(str(folder))
    rows = text.select(F.from_json("value", FIELDS).alias("row")).select("row.*")
    good = F.expr(f"id is not null and at is not null and {PLAUSIBLE}")
    wait = f"{int((LATE_BY + OUT_OF_ORDER).total_seconds()) + 1} seconds"
    named = rows.where(good).select(*(F.col(column).alias(f"{name}_{column}") for column in ("id", "at", "value")))
    return named.withWatermark(f"{name}_at", wait)


CONTENDERS: dict[str, Callable[[Path, Path, Path, int], DataFrame]] = {
    "tidemark": partial(tidemark, kind="inner"),
    "outer": partial(tidemark, kind="outer"),
    "spark": spark_join,
}


def main() -> None:
    """Run one contender."""
    name, left, right, work, files_per_batch, result = sys.argv[1:]
    started = time.monotonic()
    pairs = CONTENDERS[name](Path(left), Path(right), Path(work), int(files_per_batch))
    took = time.monotonic() - started
    counted = pairs.agg(F.count("*"), F.sum("left_value"), F.sum("right_value")).first()
    assert counted is not None
    Path(result).write_text(json.dumps({"seconds": took, "pairs": counted[0], "sums": [counted[1], counted[2]]}))


if __name__ == "__main__":
    main()

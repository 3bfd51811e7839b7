"""Each contender as a program: `python -m benchmarks.compare.contenders NAME INPUT WORK FILES_PER_BATCH RESULT`.

Every one takes all files of INPUT in batches of so many files, writes its tables below WORK, and writes to
RESULT what it counts there.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.compare.counts import Result, batches_of, logged, rows_in, total_of
from benchmarks.compare.declared import DELAY, FIELDS, MINUTES, PLAUSIBLE, WINDOW, declared
from benchmarks.compare.rocksdb import keep_state_in_rocksdb
from streaming import Lake, Pipeline, SessionWindow, Settings, Sliding, Tumbling, Window, drain
from streaming.log.batches import read_batches
from streaming.service.observer import Observer
from streaming.service.run import Run
from streaming.spark.jars import spark_jars
from streaming.spark.session import start_session
from streaming.tables.delta import opened
from streaming.tables.history import commits_of


def plain(source: Path, work: Path, files_per_batch: int) -> Result:
    """JSON to Parquet, and nothing else: what Spark cannot do for less."""
    spark = session()
    rows = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", files_per_batch).json(str(source))
    return to_parquet(spark, rows, work)


def to_parquet(spark: SparkSession, rows: DataFrame, work: Path) -> Result:
    """Everything that a stream has now as Parquet files, and what is in them."""
    started = time.monotonic()
    query = (
        rows.writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .option("path", str(work / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took = time.monotonic() - started
    # Spark reads a damaged payload as a row of nulls, so damaged ones are counted, too.
    number, total = spark.read.parquet(str(work / "rows")).agg(F.count("*"), F.sum("value")).first() or (0, 0)
    return {"rows": number, "sum": total, "seconds": took, **batches_of(query)}


def log(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark's event log: parsed, validated, stamped, committed."""
    spark, lake, pipeline = session(), Lake(str(work)), declared(str(source), files_per_batch)
    started = time.monotonic()
    query = ingest(spark, lake, pipeline)
    return {**logged(lake, pipeline), "seconds": time.monotonic() - started, **batches_of(query)}


def tidemark(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark: log, first results, late and rejected rows."""
    return _drained(source, work, files_per_batch, MINUTES)


def _drained(
    source: Path, work: Path, files_per_batch: int, window: Window, windows: int = 1, *, then_closed: bool = False
) -> Result:
    """Tidemark's log and view, drained over any window; every row is in so many `windows`.

    `then_closed`: the end of the input is told in a second drain, whose seconds are `closed_after`.
    """
    spark, lake, pipeline = session(), Lake(str(work)), declared(str(source), files_per_batch, window)
    started = time.monotonic()
    drain(spark, lake, pipeline, end_of_input=not then_closed)
    took, closed_after = time.monotonic() - started, 0.0
    if then_closed:
        drain(spark, lake, pipeline, end_of_input=True)
        closed_after = time.monotonic() - started - took
    (view,) = pipeline.views
    counted = total_of(lake.first(view), "readings")
    batches = [batch for batch in read_batches(lake, pipeline.stream) if batch.cause == "source"]
    late = sum(sum((batch.late or {}).values()) for batch in batches)
    return {
        **logged(lake, pipeline),
        "counted": counted,
        "late": late,
        "windows_of_a_row": windows,
        "seconds": took,
        "closed_after": closed_after,
        "batches": len(batches),
    }


def sliding(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark with every row in five windows."""
    return _drained(source, work, files_per_batch, Sliding("5 minutes", WINDOW), 5)


def hours(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark with an hour that slides by the minute, so that every row is in sixty windows."""
    return _drained(source, work, files_per_batch, Sliding("1 hour", WINDOW), 60, then_closed=True)


def days(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark with a window that stays open for all of the input."""
    return _drained(source, work, files_per_batch, Tumbling("1 day"), then_closed=True)


def sessions(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark with sessions, which end after half an hour without a row of their key."""
    return _drained(source, work, files_per_batch, SessionWindow("30 minutes"), then_closed=True)


def first(source: Path, work: Path, files_per_batch: int) -> Result:
    """Tidemark from the start of its process to its first commit, in seconds."""
    spark, lake, pipeline = session(), Lake(str(work)), declared(str(source), files_per_batch)
    ingest(spark, lake, pipeline)
    *_, batch, _ = commits_of(opened(lake.log(pipeline.stream)))
    return {**logged(lake, pipeline), "seconds": batch["timestamp"] / 1000 - psutil.Process().create_time()}


def bare(source: Path, work: Path, files_per_batch: int) -> Result:
    """A Spark session that writes one row to a Delta table, from the start of its process, in seconds."""
    settings = Settings()
    spark = (
        SparkSession.builder.master(settings.master)
        .config("spark.jars", ",".join(map(str, spark_jars()[:2])))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    spark.range(1).write.format("delta").save(str(work / "row"))
    return {"seconds": time.time() - psutil.Process().create_time()}


def usual(source: Path, work: Path, files_per_batch: int) -> Result:
    """As it is written by hand: a query each for valid rows, rejected rows and windows, each parsing for itself."""
    spark = session()
    # Spark's default, which our own session does not keep.
    spark.conf.set("spark.sql.shuffle.partitions", "200")
    keep_state_in_rocksdb(spark)

    def parsed() -> DataFrame:
        text = spark.readStream.option("maxFilesPerTrigger", files_per_batch).text(str(source))
        return text.select("value", F.from_json("value", FIELDS).alias("row"))

    def append(rows: DataFrame, name: str) -> StreamingQuery:
        writer = rows.writeStream.format("delta").outputMode("append").trigger(availableNow=True)
        return writer.option("checkpointLocation", str(work / f"{name}.checkpoint")).start(str(work / name))

    good = F.coalesce(F.expr(f"row.id is not null and row.at is not null and row.{PLAUSIBLE}"), F.lit(False))
    started = time.monotonic()
    valid = parsed().where(good).select("row.*")
    windows = (
        valid.withWatermark("at", DELAY)
        .groupBy("id", F.window("at", WINDOW))
        .agg(F.count("*").alias("readings"), F.sum("value").alias("sum_value"))
    )
    queries = [
        append(valid, "valid"),
        append(parsed().where(~good).select("value"), "rejected"),
        append(windows, "windows"),
    ]
    for query in queries:
        query.awaitTermination()
    took = time.monotonic() - started
    valid_rows, valid_sum = rows_in(work / "valid"), total_of(work / "valid", "value")
    rejected = rows_in(work / "rejected")
    # Rows that its watermark drops, or whose windows are open when the input ends, are in no window.
    lost = valid_rows - total_of(work / "windows", "readings")
    return {
        "rows": valid_rows + rejected,
        "damaged": rejected,
        "valid": valid_rows,
        "sum": valid_sum,
        "in_no_window": lost,
        "seconds": took,
        "batches": batches_of(queries[0])["batches"],
    }


def session() -> SparkSession:
    """The platform's own, which also remembers what every batch took."""
    # By default Spark keeps the progress of the last hundred batches only.
    spark = start_session()
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    return spark


def ingest(spark: SparkSession, lake: Lake, pipeline: Pipeline) -> StreamingQuery:
    """Everything from the source to the log; the query, which has ended."""
    run = Run(spark, lake, pipeline, Observer())
    (query,) = run.start_ingest(availableNow=True).values()
    query.awaitTermination()
    return query


CONTENDERS: dict[str, Callable[[Path, Path, int], Result]] = {
    "bare": bare,
    "first": first,
    "plain": plain,
    "usual": usual,
    "log": log,
    "tidemark": tidemark,
    "sliding": sliding,
    "hours": hours,
    "days": days,
    "sessions": sessions,
}


def main() -> None:
    """Run one contender."""
    name, source, work, files_per_batch, result = sys.argv[1:]
    counts = CONTENDERS[name](Path(source), Path(work), int(files_per_batch))
    Path(result).write_text(json.dumps(counts))


if __name__ == "__main__":
    main()

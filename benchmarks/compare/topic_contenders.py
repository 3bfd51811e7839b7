"""Contenders that read a topic: `python -m benchmarks.compare.topic_contenders NAME SERVERS TOPIC WORK RESULT`.

Each reads the topic from its first record to its last in batches of as many records, and writes to RESULT what it
counts in what it wrote below WORK.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import functions as F

from benchmarks.compare.contenders import ingest, session, to_parquet
from benchmarks.compare.counts import Result, batches_of, logged
from benchmarks.compare.declared import FIELDS, declared_of
from streaming import Kafka, Lake
from streaming.spark import KAFKA, add_jars

ROWS_A_BATCH = 500_000


def plain(servers: str, topic: str, work: Path) -> Result:
    """Kafka to Parquet as Spark's documentation has it: typed columns, and nothing kept of what cannot be read."""
    spark = session()
    add_jars(spark, KAFKA)
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_A_BATCH)
        .load()
    )
    rows = records.select(F.from_json(F.col("value").cast("string"), FIELDS).alias("row")).select("row.*")
    return to_parquet(spark, rows, work)


def log(servers: str, topic: str, work: Path) -> Result:
    """Tidemark's event log of the topic: parsed, validated, stamped, committed."""
    spark, lake, pipeline = session(), Lake(str(work)), declared_of(Kafka(servers, topic, rows_per_batch=ROWS_A_BATCH))
    started = time.monotonic()
    query = ingest(spark, lake, pipeline)
    return {**logged(lake, pipeline), "seconds": time.monotonic() - started, **batches_of(query)}


CONTENDERS: dict[str, Callable[[str, str, Path], Result]] = {"plain": plain, "log": log}


def main() -> None:
    """Run one contender."""
    name, servers, topic, work, result = sys.argv[1:]
    Path(result).write_text(json.dumps(CONTENDERS[name](servers, topic, Path(work))))


if __name__ == "__main__":
    main()

"""What the event log costs from a topic beside plain Spark: `python -m benchmarks.kafka_to_log ROWS`.

A broker of its own has the lines of `compare/data.py` in a topic of two partitions. Contenders take turns, each a
process of its own: Spark's topic to Parquet by `from_json`, and nothing else; Tidemark's log, with origins, reasons,
payloads of rejected rows and stamps. A run over a hundred rows tells what a process costs before it has rows to speak
of. CPU seconds are those of the process and all it started; the broker's are not. Rows and sums are compared with those
that were generated.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic
from pyspark.sql import functions as F

from benchmarks.compare.contenders import Result, batches_of, ingested, logged, session
from benchmarks.compare.data import TINY, Expected, Shape, files
from benchmarks.compare.declared import FIELDS, over
from benchmarks.compare.measure import measure
from streaming import Kafka, Lake
from streaming.feeds import LocalKafka
from streaming.spark import KAFKA, add_jars

_TIMES, _PARTITIONS, _ROWS_PER_BATCH = 2, 2, 500_000
_ANSWERS_WITHIN = 60.0
_PLAIN, _LOG = "Spark, topic to Parquet", "Tidemark, event log"


def plain(servers: str, topic: str, work: Path) -> Result:
    """Topic to Parquet, and nothing else: what Spark cannot do for less."""
    spark = session()
    add_jars(spark, KAFKA)
    query = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"})
        .option("maxOffsetsPerTrigger", _ROWS_PER_BATCH)
        .load()
        .select(F.from_json(F.col("value").cast("string"), FIELDS).alias("row"))
        .select("row.*")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(work / "checkpoint"))
        .option("path", str(work / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    # Spark reads a damaged line as a row of nulls, so damaged lines are counted, too.
    rows, total = spark.read.parquet(str(work / "rows")).agg(F.count("*"), F.sum("value")).first() or (0, 0)
    return {"rows": rows, "sum": total, **batches_of(query)}


def log(servers: str, topic: str, work: Path) -> Result:
    """Tidemark's event log: parsed, validated, stamped, committed."""
    lake, pipeline = Lake(str(work)), over(Kafka(servers, topic, rows_per_batch=_ROWS_PER_BATCH))
    query = ingested(session(), lake, pipeline)
    return {**logged(lake, pipeline), **batches_of(query)}


_CONTENDERS = {_PLAIN: plain, _LOG: log}


def measured(servers: str, topic: str, expected: Expected, times: int) -> dict[str, float]:
    """Median CPU seconds of each contender; they take turns.

    Raises:
        ValueError: one did not find what is there.
        RuntimeError: one failed.
    """
    seconds: dict[str, list[float]] = {name: [] for name in _CONTENDERS}
    for _ in range(times):
        for name, of in seconds.items():
            with TemporaryDirectory(prefix="tidemark-bench-") as work:
                run = measure([sys.executable, "-m", "benchmarks.kafka_to_log", name, servers, topic, work])
            should = {key: value for key, value in asdict(expected).items() if key in run.result}
            found = {key: run.result[key] for key in should}
            if found != should:
                raise ValueError(f"{name} found {found}, and should {should}.")
            of.append(run.cpu)
            print(f"{name:24} {expected.rows:>10,} rows {run.wall:6.1f} s {run.cpu:6.1f} s CPU", file=sys.stderr)
    return {name: statistics.median(each) for name, each in seconds.items()}


def _filled(broker: LocalKafka, topic: str, shape: Shape) -> Expected:
    """A topic of that name with the lines, in turn over its partitions; what is in it."""
    for future in broker.admin.create_topics([NewTopic(topic, _PARTITIONS)]).values():
        future.result(_ANSWERS_WITHIN)
    expected = Expected()
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "linger.ms": 50})
    for lines in files(shape, expected):
        for number, line in enumerate(lines):
            producer.produce(topic, line.rstrip("\n"), partition=number % _PARTITIONS)
            if not number % 1_000:
                producer.poll(0)
        producer.flush(_ANSWERS_WITHIN)
    return expected


def main() -> None:
    """Measure and print a table; or with the name of a contender, be that one."""
    if len(sys.argv) > 2:
        name, servers, topic, work, result = sys.argv[1:]
        Path(result).write_text(json.dumps(_CONTENDERS[name](servers, topic, Path(work))))
        return
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    started = time.monotonic()
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        broker = LocalKafka(Path(folder))
        broker.start()
        try:
            few = measured(broker.servers, "few", _filled(broker, "few", TINY), 1)
            many = measured(broker.servers, "many", _filled(broker, "many", Shape(rows)), _TIMES)
        finally:
            broker.kill()
    for name, cpu in many.items():
        # What a row costs, once the process has started.
        of_row, of_plain = ((many[each] - few[each]) / rows * 1e6 for each in (name, _PLAIN))
        ratios = f"{many[_PLAIN] / cpu:.2f} | {of_plain / of_row:.2f}"
        print(f"| {name} | {few[name]:.1f} s | {cpu:.1f} s | {rows / cpu:,.0f} | {of_row:.1f} µs | {ratios} |")
    print(f"{time.monotonic() - started:.0f} s in all", file=sys.stderr)


if __name__ == "__main__":
    main()

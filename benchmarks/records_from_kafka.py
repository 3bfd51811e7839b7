"""The cost of a topic into the log, beside plain Spark and Flink: `python -m benchmarks.records_from_kafka`.

Contenders take turns on a broker of their own on this machine, each as a whole process that reads a topic of three
partitions from its first record to its last. There are two topics, one with more rows than the other: the difference
of their CPU, over that of their rows, is what a row costs without the start of the process. What a contender found is
compared with what was produced before its time counts. The broker's CPU is nobody's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from benchmarks.compare.arena import check
from benchmarks.compare.data import Expected, Shape, files
from benchmarks.compare.measure import Measured, measure
from benchmarks.demands import console
from benchmarks.records_to_kafka import ANSWERS_WITHIN, end, send
from platform_assets.demo.feeds.local_kafka import LocalKafka
from streaming.spark import JarGroup, jars_of

_PARTITIONS = 3
_FLINK_KAFKA = JarGroup(
    "flink_kafka", "Flink's connector of Kafka", (("org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",),)
)
_WHAT = {"plain": "Spark, records to Parquet", "log": "Tidemark, event log", "flink": "Flink, valid rows to CSV"}

Runs = dict[str, list[Measured]]


def produced(broker: LocalKafka, topic: str, rows: int) -> Expected:
    """A topic with so many records of 167 bytes, spread over its partitions; what a reader must find in it."""
    for future in broker.admin.create_topics([NewTopic(topic, _PARTITIONS)]).values():
        future.result(ANSWERS_WITHIN)
    expected = Expected()
    producer = Producer({"bootstrap.servers": broker.servers, "enable.idempotence": True, "linger.ms": 50})
    for lines in files(Shape(rows), expected):
        for number, line in enumerate(lines):
            send(producer, topic, line.rstrip("\n").encode(), partition=number % _PARTITIONS)
    end(producer)
    return expected


def read_by(contender: str, flink: Path | None, servers: str, topic: str, expected: Expected) -> Measured:
    """One run of a contender over a topic.

    Raises:
        WrongSums: it did not find what was produced.
        RuntimeError: it failed.
    """
    if contender == "flink":
        (jar,) = jars_of(_FLINK_KAFKA)
        program = [str(flink), "-m", "benchmarks.compare.flink_topic_job", str(jar)]
    else:
        program = [sys.executable, "-m", "benchmarks.compare.topic_contenders", contender]
    with TemporaryDirectory(prefix="tidemark-bench-") as work:
        measured = measure([*program, servers, topic, work], {"OMP_NUM_THREADS": "2"})
    check(contender, measured, expected)
    console.print(
        f"  {contender:6} {expected.rows:>10,} rows  {measured.wall:6.1f} s wall  {measured.cpu:6.1f} s CPU  "
        f"{measured.peak / 2**20:6,.0f} MB",
        highlight=False,
    )
    return measured


def table(runs: dict[int, Runs]) -> str:
    """A Markdown row for each contender: medians of whole processes, and of the differences of both sizes."""
    few, many = sorted(runs)
    head = " | ".join(f"{rows:,} rows: CPU, wall" for rows in (few, many))
    lines = [
        f"| contender | {head} | peak MB | rows per CPU second, whole process | without its start | from, to |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, of_many in runs[many].items():
        of_few = runs[few][name]
        apart = [(many - few) / (large.cpu - small.cpu) for small, large in zip(of_few, of_many, strict=True)]
        whole = " | ".join(
            f"{statistics.median(run.cpu for run in of):.1f} s, {statistics.median(run.wall for run in of):.1f} s"
            for of in (of_few, of_many)
        )
        lines.append(
            f"| {_WHAT[name]} | {whole} | {statistics.median(run.peak for run in of_many) / 2**20:,.0f} | "
            f"{many / statistics.median(run.cpu for run in of_many):,.0f} | {statistics.median(apart):,.0f} | "
            f"{min(apart):,.0f}, {max(apart):,.0f} |"
        )
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs=2, default=(300_000, 1_000_000), metavar=("FEW", "MANY"))
    parser.add_argument("--times", type=int, default=3, help="how often contenders take turns")
    parser.add_argument("--flink", type=Path, metavar="PYTHON", help="a Python with PyFlink; left out, Flink is")
    arguments = parser.parse_args(given)
    contenders = ["plain", "log", *(["flink"] if arguments.flink else [])]
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        broker = LocalKafka(Path(folder))
        broker.start()
        try:
            expected = {rows: produced(broker, f"records-{rows}", rows) for rows in arguments.rows}
            runs: dict[int, Runs] = {rows: {name: [] for name in contenders} for rows in arguments.rows}
            for _ in range(arguments.times):
                for name in contenders:
                    for rows, of in expected.items():
                        measured = read_by(name, arguments.flink, broker.servers, f"records-{rows}", of)
                        runs[rows][name].append(measured)
        finally:
            broker.kill()
    console.print(f"\n{table(runs)}", highlight=False, markup=False)


if __name__ == "__main__":
    main()

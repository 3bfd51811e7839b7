"""The cost of a delivery to a topic beside a plain producer: `python -m benchmarks.records_to_kafka ROWS`.

Contenders take turns on a broker of their own on this machine, each into a topic of one partition: `confluent_kafka`'s
producer as its documentation has it, without transactions, a JSON object and a key for each row; the target in
batches of 10,000, with and without transactions. CPU seconds are those of this process, the threads of the client
among them; the broker's are not. Every topic is read back: rows, sum of values, keys.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from benchmarks.copy_to_postgres import batches, made
from platform_assets.demo.feeds.local_kafka import LocalKafka
from streaming.lake import Lake
from streaming.sinks import Delivered, KafkaTopic, NumberedBatch

_TIMES = 5
ANSWERS_WITHIN = 60.0
"""Seconds."""


def produced(servers: str, rows: pa.Table, topic: str) -> None:
    """A record a row, nothing but acknowledged by all replicas."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random"})
    for batch in batches(rows.select(["id", "at", "value", "ratio"])):
        for row in batch.to_pylist():
            send(producer, topic, json.dumps({**row, "at": row["at"].isoformat()}).encode(), key=row["id"].encode())
    end(producer)


def send(producer: Producer, topic: str, value: bytes, **more: Any) -> None:
    """A record, once there is room for it; `more` is what `produce` takes, such as `key`."""
    while True:
        try:
            producer.produce(topic, value, **more)
            break
        except BufferError:
            producer.poll(0.1)
    producer.poll(0)


def end(producer: Producer) -> None:
    """Wait until the broker has everything.

    Raises:
        TimeoutError: it does not take it.
    """
    if producer.flush(ANSWERS_WITHIN):
        raise TimeoutError(f"the broker has not taken all rows within {ANSWERS_WITHIN:.0f} s.")


def delivered(servers: str, rows: pa.Table, topic: str, transactional: bool) -> None:
    """The target, in batches."""
    name = f"bench/{topic}"
    target = KafkaTopic(servers, topic, key=("id",), transactional=transactional)
    sink = target.connect(Lake("/nowhere"), Delivered(name, key=("id",)))
    for number, batch in enumerate(batches(rows)):
        sink.deliver(NumberedBatch(name, 0, number, batch), lambda refused: None)
    sink.close()


def measured(broker: LocalKafka, rows: pa.Table) -> dict[str, tuple[float, float]]:
    """Median seconds of CPU and of the clock of each contender; they take turns.

    Raises:
        ValueError: a topic does not hold the rows.
    """
    servers = broker.servers
    contenders: dict[str, Callable[[str], None]] = {
        "plain producer": lambda topic: produced(servers, rows, topic),
        "`KafkaTopic`": lambda topic: delivered(servers, rows, topic, True),
        "`KafkaTopic(transactional=False)`": lambda topic: delivered(servers, rows, topic, False),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for turn in range(_TIMES):
        for place, (name, run) in enumerate(contenders.items()):
            topic = f"t-{turn}-{place}"
            for future in broker.admin.create_topics([NewTopic(topic, 1)]).values():
                future.result(ANSWERS_WITHIN)
            burnt, begun = time.process_time(), time.perf_counter()
            run(topic)
            seconds[name].append((time.process_time() - burnt, time.perf_counter() - begun))
            _check(servers, topic, rows)
    return {
        name: (statistics.median(cpu for cpu, _ in each), statistics.median(wall for _, wall in each))
        for name, each in seconds.items()
    }


def _check(servers: str, topic: str, rows: pa.Table) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    total, keys, ended = 0, list[bytes](), False
    while not ended:
        for message in consumer.consume(10_000, timeout=1.0):
            ended = ended or message.error() is not None
            if message.error() is None:
                total += json.loads(message.value() or b"")["value"]
                keys.append(message.key() or b"")
    consumer.close()
    figures, should = (len(keys), len(set(keys)), total), (rows.num_rows, rows.num_rows, sum(range(rows.num_rows)))
    if figures != should:
        raise ValueError(f"{topic} holds {figures} rows, keys and sum of values, and should {should}.")


def main() -> None:
    """Measure, and print a table."""
    rows = made(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        broker = LocalKafka(Path(folder))
        broker.start()
        try:
            durations = measured(broker, rows)
        finally:
            broker.kill()
    plain = durations["plain producer"][0]
    for name, (cpu, wall) in durations.items():
        print(f"| {name} | {cpu:.2f} s | {wall:.2f} s | {rows.num_rows / cpu:,.0f} | {plain / cpu:.2f} |")


if __name__ == "__main__":
    main()

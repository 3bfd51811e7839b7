"""A topic to files in Flink's Table API: `python -m benchmarks.compare.flink_topic_job JAR SERVERS TOPIC WORK RESULT`.

It runs in a Python of its own; JAR is Flink's connector of Kafka.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.compare.flink_job import (
    COLUMNS,
    GOOD,
    counted_and_summed,
    streaming_environment,
    write_files,
)


def main() -> None:
    """Valid rows, exactly once, to files."""
    jar, servers, topic, work, result = sys.argv[1:]
    environment = streaming_environment(work)
    environment.get_config().set("pipeline.jars", Path(jar).as_uri())
    environment.execute_sql(f"""
        CREATE TABLE readings ({COLUMNS}) WITH (
            'connector' = 'kafka', 'properties.bootstrap.servers' = '{servers}', 'topic' = '{topic}',
            'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset', 'format' = 'json',
            'json.ignore-parse-errors' = 'true', 'json.timestamp-format.standard' = 'ISO-8601'
        )""")
    write_files(environment, "valid", COLUMNS, work)
    started = time.monotonic()
    environment.execute_sql(f"INSERT INTO valid SELECT * FROM readings WHERE {GOOD}").wait()
    took = time.monotonic() - started
    rows, total = counted_and_summed(Path(work, "valid"), 2)
    Path(result).write_text(json.dumps({"valid": rows, "sum": total, "seconds": took}))


if __name__ == "__main__":
    main()

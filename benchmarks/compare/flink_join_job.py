"""The interval join in Flink's Table API: `python -m benchmarks.compare.flink_join_job LEFT RIGHT WORK FILES RESULT`.

It runs in a Python of its own and, as Tidemark's logs do, keeps the valid rows of both sides beside the pairs.
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
    read_files,
    streaming_environment,
    write_files,
)

_NEAR = "INTERVAL '4' SECOND"


def main() -> None:
    """Valid rows and pairs, exactly once, to files."""
    *sources, work, _, result = sys.argv[1:]
    environment = streaming_environment(work)
    for name, source in zip(("ours", "theirs"), sources, strict=True):
        read_files(environment, name, source)
        write_files(environment, f"valid_{name}", COLUMNS, work)
    write_files(environment, "pairs", "id STRING, left_value DOUBLE, right_value DOUBLE", work)
    started = time.monotonic()
    statements = environment.create_statement_set()
    for name in ("ours", "theirs"):
        statements.add_insert_sql(f"INSERT INTO valid_{name} SELECT * FROM {name} WHERE {GOOD}")
    statements.add_insert_sql(f"""
        INSERT INTO pairs
        SELECT l.id, l.`value`, r.`value`
        FROM (SELECT * FROM ours WHERE {GOOD}) l, (SELECT * FROM theirs WHERE {GOOD}) r
        WHERE l.id = r.id AND r.`at` BETWEEN l.`at` - {_NEAR} AND l.`at` + {_NEAR}""")
    statements.execute().wait()
    took = time.monotonic() - started
    pairs = Path(work, "pairs")
    (count, left), (_, right) = (counted_and_summed(pairs, column) for column in (1, 2))
    Path(result).write_text(json.dumps({"seconds": took, "pairs": count, "sums": [left, right]}))


if __name__ == "__main__":
    main()

"""The task as one batch of DuckDB, written with delta-rs: what the machine can do at most."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import duckdb
from deltalake import write_deltalake

READINGS = """
    SELECT * FROM read_json('{source}/*.json', format = 'newline_delimited', ignore_errors = true, columns = {{
        id: 'VARCHAR', "at": 'TIMESTAMPTZ', value: 'DOUBLE', unit: 'VARCHAR', site: 'VARCHAR', note: 'VARCHAR'
    }}) WHERE id IS NOT NULL AND "at" IS NOT NULL AND value BETWEEN 0 AND 1000
"""


def main() -> None:
    """Valid rows and windows."""
    source, work, _, result = sys.argv[1:]
    database = duckdb.connect()
    database.execute("SET threads = 2")
    started = time.monotonic()
    valid = database.sql(READINGS.format(source=source))
    write_deltalake(f"{work}/valid", valid)
    windows = database.sql(
        'SELECT id, time_bucket(INTERVAL 1 MINUTE, "at") AS window_start, count(*) AS readings, sum(value) '
        f"FROM ({READINGS.format(source=source)}) GROUP BY ALL"
    )
    write_deltalake(f"{work}/windows", windows)
    took = time.monotonic() - started
    ((rows, total),) = database.execute(
        f"SELECT count(*), sum(value) FROM ({READINGS.format(source=source)})"
    ).fetchall()
    Path(result).write_text(json.dumps({"valid": rows, "sum": total, "seconds": took}))


if __name__ == "__main__":
    main()

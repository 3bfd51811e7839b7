"""The task in Flink's Table API, run by a Python of its own: `python flink_job.py INPUT WORK MODE RESULT`.

MODE `live` goes on until it is killed; with any other, everything in INPUT is worked off.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment

CHECKPOINT_EVERY = "2 s"
# Flink reads file splits in no order, so a bound as small as Tidemark's would silently drop most rows.
WATERMARK_BEHIND = "INTERVAL '1' DAY"
WINDOW = "INTERVAL '1' MINUTE"

LIVE_CHECKPOINT_EVERY = "1 s"
LIVE_WATERMARK_BEHIND = "INTERVAL '2' SECOND"
LIVE_WINDOW = "INTERVAL '9.75' SECOND"

_SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.incremental": "true",
    "state.backend.type": "rocksdb",
    "table.local-time-zone": "UTC",
}

COLUMNS = "id STRING, `at` TIMESTAMP_LTZ(3), `value` DOUBLE, unit STRING, site STRING, note STRING"
GOOD = "id IS NOT NULL AND `at` IS NOT NULL AND `value` BETWEEN 0 AND 1000"


def main() -> None:
    """Valid rows and windows, exactly once, to files."""
    source, work, mode, result = sys.argv[1:]
    live = mode == "live"
    environment = streaming_environment(work, LIVE_CHECKPOINT_EVERY if live else CHECKPOINT_EVERY)
    read_files(environment, "readings", source, live=live)
    write_files(environment, "valid", COLUMNS, work)
    write_files(environment, "windows", "id STRING, window_start TIMESTAMP(3), readings BIGINT, sum_value DOUBLE", work)
    started = time.monotonic()
    statements = environment.create_statement_set()
    # Tidemark keeps the rows as well as the windows, so Flink has to.
    statements.add_insert_sql(f"INSERT INTO valid SELECT * FROM readings WHERE {GOOD}")
    statements.add_insert_sql(f"""
        INSERT INTO windows
        SELECT id, window_start, COUNT(*), SUM(`value`)
        FROM TABLE(TUMBLE(TABLE readings, DESCRIPTOR(`at`), {LIVE_WINDOW if live else WINDOW}))
        WHERE {GOOD} GROUP BY id, window_start, window_end""")
    statements.execute().wait()
    took = time.monotonic() - started
    rows, total = counted_and_summed(Path(work, "valid"), 2)
    _, counted = counted_and_summed(Path(work, "windows"), 2)
    counts = {"valid": rows, "sum": total, "counted": counted, "late": 0, "seconds": took}
    Path(result).write_text(json.dumps(counts))


def settings(work: str, checkpoint_every: str = CHECKPOINT_EVERY) -> dict[str, str]:
    """Two tasks at once, state in RocksDB, checkpoints of what has changed in a folder of `work`."""
    return {
        **_SETTINGS,
        "execution.checkpointing.interval": checkpoint_every,
        # Without one they are kept in memory, where more than 5 MB of state fail and start the job again, for ever.
        "execution.checkpointing.dir": Path(work, "checkpoints").absolute().as_uri(),
    }


def streaming_environment(work: str, checkpoint_every: str = CHECKPOINT_EVERY) -> TableEnvironment:
    """An environment of the Table API with these settings."""
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    configuration = environment.get_config()
    for key, value in settings(work, checkpoint_every).items():
        configuration.set(key, value)
    return environment


def read_files(environment: TableEnvironment, name: str, source: str, *, live: bool = False) -> None:
    """A table of the readings in a folder; `live`: also of files that are yet to come."""
    environment.execute_sql(f"""
        CREATE TABLE {name} (
            {COLUMNS}, WATERMARK FOR `at` AS `at` - {LIVE_WATERMARK_BEHIND if live else WATERMARK_BEHIND}
        ) WITH (
            'connector' = 'filesystem', 'path' = '{source}', 'format' = 'json',
            {"'source.monitor-interval' = '200 ms'," if live else ""}
            'json.ignore-parse-errors' = 'true', 'json.timestamp-format.standard' = 'ISO-8601'
        )""")


def write_files(environment: TableEnvironment, name: str, columns: str, work: str) -> None:
    """A table that is written to files, exactly once."""
    environment.execute_sql(f"""
        CREATE TABLE {name} ({columns}) WITH (
            'connector' = 'filesystem', 'path' = '{work}/{name}', 'format' = 'csv',
            'sink.rolling-policy.rollover-interval' = '1 s', 'sink.rolling-policy.check-interval' = '200 ms'
        )""")


def counted_and_summed(folder: Path, column: int) -> tuple[int, float]:
    """The number of lines in the committed files, and the sum of a column."""
    rows, total = 0, 0.0
    for path in folder.rglob("part-*"):
        with path.open() as lines:
            for line in lines:
                rows += 1
                total += float(line.split(",")[column])
    return rows, total


if __name__ == "__main__":
    main()

"""The keyed function in Flink: `python -m benchmarks.compare.flink_keyed_job INPUT WORK _ RESULT`.

It runs in a Python of its own and, as Tidemark's log does, keeps the valid rows beside what it tells.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration, Row, Types
from pyflink.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.table import StreamTableEnvironment

from benchmarks.compare.flink_job import COLUMNS, GOOD, counted_and_summed, read_files, settings, write_files

_FAR = 700.0


class Jumps(KeyedProcessFunction):
    """Tell a value that is far from the one before it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Where the value before is kept."""
        self._previous = runtime_context.get_state(ValueStateDescriptor("previous", Types.DOUBLE()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """The next row of the key."""
        key, now = value
        before = self._previous.value()
        if before is not None and abs(now - before) > _FAR:
            yield Row(key, now, abs(now - before))
        self._previous.update(now)


def main() -> None:
    """Valid rows and jumps, exactly once, to files."""
    source, work, _, result = sys.argv[1:]
    configuration = Configuration()
    # Python then asks Java for the state of a key once in a checkpoint, not for each of its rows.
    for key, value in {**settings(work), "python.state.cache-size": "100000"}.items():
        configuration.set_string(key, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    tables = StreamTableEnvironment.create(environment)
    read_files(tables, "readings", source)
    write_files(tables, "valid", COLUMNS, work)
    write_files(tables, "jumps", "id STRING, `value` DOUBLE, jump DOUBLE", work)
    started = time.monotonic()
    rows = tables.to_data_stream(tables.sql_query(f"SELECT id, `value` FROM readings WHERE {GOOD}"))
    jumps = rows.key_by(lambda row: row[0], Types.STRING()).process(
        Jumps(), Types.ROW_NAMED(["id", "value", "jump"], [Types.STRING(), Types.DOUBLE(), Types.DOUBLE()])
    )
    statements = tables.create_statement_set()
    statements.add_insert_sql(f"INSERT INTO valid SELECT * FROM readings WHERE {GOOD}")
    statements.add_insert("jumps", tables.from_data_stream(jumps))
    statements.execute().wait()
    took = time.monotonic() - started
    (count, values), (_, far) = (counted_and_summed(Path(work, "jumps"), column) for column in (1, 2))
    Path(result).write_text(json.dumps({"seconds": took, "told": [count, values, far]}))


if __name__ == "__main__":
    main()

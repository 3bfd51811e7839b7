"""The cost of a delivery to Postgres beside plain COPY of the same rows: `python -m benchmarks.copy_to_postgres ROWS`.

Contenders take turns on a server of their own on this machine: `psycopg`'s COPY straight into a table, row by row as
its documentation has it; the target without and with a key, in batches of 10,000; and, to see what several connections
would bring, COPY into an unlogged staging table over one, two and four of them, each in a thread, and over one as CSV
that Arrow writes. Every table is summed afterwards: rows, sum of values, ids, sum of ratios.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pyarrow as pa
from pyarrow.csv import WriteOptions, write_csv

from platform_assets.demo.feeds.local_postgres import LocalPostgres
from streaming.lake import Lake
from streaming.sinks import REVISION, TIME, Delivered, NumberedBatch, Postgres

_TIMES = 3
_BATCH = 10_000
_COLUMNS = "id text, at timestamptz, value bigint, ratio double precision"
_COPY = "copy {} (id, at, value, ratio) from stdin"


def made(rows: int) -> pa.Table:
    """Rows of four columns, each with an id of its own, and what every batch has beside them."""
    numbers = pa.array(range(rows), pa.int64())
    second = 1_000_000
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * second
    at = pa.array([start + number * second for number in range(rows)], pa.timestamp("us", "UTC"))
    ids = pa.array([f"meter-{number:08}" for number in range(rows)])
    ratios = pa.array([number / 7 for number in range(rows)], pa.float64())
    columns = {"id": ids, "at": at, "value": numbers, "ratio": ratios, REVISION: numbers, TIME: at}
    return pa.table(columns)


def copied(connection: str, rows: pa.Table, table: str) -> None:
    """COPY on one connection, a tuple a row."""
    given = rows.select(["id", "at", "value", "ratio"])
    with psycopg.connect(connection) as there, there.cursor() as cursor, cursor.copy(_COPY.format(table)) as copy:
        for batch in batches(given):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                copy.write_row(row)


def in_parallel(connection: str, rows: pa.Table, table: str, connections: int) -> None:
    """COPY of as many parts, each on a connection of its own."""
    size = -(-rows.num_rows // connections)
    parts = [rows.slice(first, size) for first in range(0, rows.num_rows, size)]
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(lambda part: copied(connection, part, table), parts))


def copied_as_csv(connection: str, rows: pa.Table, table: str) -> None:
    """COPY on one connection, as text that no Python loop has made."""
    given, options = rows.select(["id", "at", "value", "ratio"]), WriteOptions(include_header=False)
    statement = f"{_COPY.format(table)} with (format csv)"
    with psycopg.connect(connection) as there, there.cursor() as cursor, cursor.copy(statement) as copy:
        for batch in batches(given):
            text = pa.BufferOutputStream()
            write_csv(batch, text, options)
            copy.write(text.getvalue().to_pybytes())


def delivered(connection: str, rows: pa.Table, table: str, key: tuple[str, ...]) -> None:
    """The target, in batches."""
    name = f"bench/{table}"
    sink = Postgres(table, key=key, connection=connection).connect(Lake("/nowhere"), Delivered(name, key=key))
    for number, batch in enumerate(batches(rows)):
        sink.deliver(NumberedBatch(name, 0, number, batch), lambda refused: None)
    sink.close()


def batches(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows as they are delivered: ten thousand at a time."""
    return (rows.slice(first, _BATCH) for first in range(0, rows.num_rows, _BATCH))


def measured(connection: str, rows: pa.Table) -> dict[str, float]:
    """Median seconds of each contender; they take turns.

    Raises:
        ValueError: a table does not hold the rows.
    """
    contenders: dict[str, Callable[[str], None]] = {
        "plain COPY": lambda table: copied(connection, rows, table),
        "Postgres, insert": lambda table: delivered(connection, rows, table, ()),
        "Postgres, upsert by key": lambda table: delivered(connection, rows, table, ("id",)),
        **{
            f"staging by {many}": lambda table, many=many: in_parallel(connection, rows, table, many)  # type: ignore[misc]
            for many in (1, 2, 4)
        },
        "staging by 1, as CSV": lambda table: copied_as_csv(connection, rows, table),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for turn in range(_TIMES):
        for place, (name, run) in enumerate(contenders.items()):
            table = f"t_{turn}_{place}"
            _make(connection, table, name)
            begun = time.perf_counter()
            run(table)
            seconds[name].append(time.perf_counter() - begun)
            _check(connection, table, rows)
    return {name: statistics.median(each) for name, each in seconds.items()}


def _make(connection: str, table: str, contender: str) -> None:
    columns = _COLUMNS + (", _revision bigint, _reason text, unique (id)" if "key" in contender else "")
    with psycopg.connect(connection) as there:
        there.execute(f"create {'unlogged' if 'staging' in contender else ''} table {table} ({columns})")


def _check(connection: str, table: str, rows: pa.Table) -> None:
    values = range(rows.num_rows)
    query = f"select count(*), sum(value), count(distinct id), round(sum(ratio)) from {table}"
    with psycopg.connect(connection) as there:
        totals = there.execute(query).fetchone()
        there.execute(f"drop table {table}")
    should = (rows.num_rows, sum(values), rows.num_rows, round(sum(values) / 7))
    if totals is None or tuple(map(int, totals)) != should:
        raise ValueError(f"{table} holds {totals}, and should {should}.")


def main() -> None:
    """Measure, and print a table."""
    rows = made(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
    # Postgres runs as another account where this process is root.
    with TemporaryDirectory(prefix="tidemark-bench-") as folder:
        Path(folder).chmod(0o755)
        server = LocalPostgres(Path(folder))
        server.start()
        try:
            durations = measured(server.connection(), rows)
        finally:
            server.kill()
    plain = durations["plain COPY"]
    for name, seconds in durations.items():
        print(f"| {name} | {seconds:.2f} s | {rows.num_rows / seconds:,.0f} | {plain / seconds:.2f} |")


if __name__ == "__main__":
    main()

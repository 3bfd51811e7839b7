"""Deliveries that end by a real SIGKILL at a named point: `python -m tests.support.delivery_crash <lake> <point>`.

The environment variables TEST_POSTGRES and TEST_BUCKET hold the connection string of a database, and endpoint and name
of a bucket.
"""

from __future__ import annotations

import os
import signal
import sys

from streaming import Lake, drain, start_session
from streaming.declare.delivery import Delivery
from streaming.sinks.files import JsonLines
from streaming.sinks.postgres import Postgres
from streaming.sinks.together import Together
from tests.support.crash import Point, armed
from tests.support.delivering import pipeline, readings
from tests.support.instants import NOW
from tests.support.object_store import Bucket

CONNECTION, BUCKET = "TEST_POSTGRES", "TEST_BUCKET"

_FILES, _POSTGRES = "streaming.sinks.file_sink:FileSink", "streaming.sinks.postgres_sink:PostgresSink"
_OBJECTS = "streaming.sinks.object_store:ObjectStore"
_LEDGER = "streaming.deliveries.ledger:LedgerTable"

# In the order in which one lake meets them: each attempt has one file more to take in, and begins with what the one
# before it left.
POINTS: dict[str, Point] = {
    "the first ledger is there, nothing is planned": Point("", _LEDGER, "begin", 1, after=True),
    "planned, no file put": Point("", _FILES, "deliver", 1),
    "one of two files put": Point("", "streaming.tables.storage", "put_whole", 2, after=True),
    "all files put, nothing noted": Point("", _FILES, "deliver", 1, after=True),
    "files put and noted": Point("", _LEDGER, "write", 1, after=True),
    "planned, nothing sent to the database": Point("", _POSTGRES, "deliver", 1),
    "rows sent, not committed": Point("", _POSTGRES, "advance", 1, after=True),
    "committed there, not noted here": Point("", _POSTGRES, "deliver", 1, after=True),
    "noted what objects will be put, one of them put": Point("", _OBJECTS, "_put", 2, after=True),
    "all objects put, no row sent": Point("", _OBJECTS, "put_each", 1, after=True),
    "both sent, the object of a refused row deleted, not committed": Point("", _OBJECTS, "remove", 2, after=True),
}


def deliveries(connection: str, bucket: str) -> tuple[Delivery, ...]:
    """Rows into files of two buckets, into a table that refuses one row, and into such a table with an object each."""
    columns = ("id", "value")
    endpoint, name = bucket.split()
    both = Together(Postgres("b", connection=connection), Bucket(endpoint, name).objects())
    return (
        Delivery("to_files", readings, JsonLines("out", by="hour"), select=columns),
        Delivery("to_table", readings, Postgres("r", connection=connection), select=columns),
        Delivery("to_both", readings, both, select=columns),
    )


def main() -> None:
    """Drain the pipeline and die."""
    root, name = sys.argv[1:]
    spark = start_session()
    with armed(POINTS[name], lambda: os.killpg(0, signal.SIGKILL)):
        drain(spark, Lake(root), pipeline(*deliveries(os.environ[CONNECTION], os.environ[BUCKET])), now=lambda: NOW)


if __name__ == "__main__":
    main()

"""Deliveries that end by a real SIGKILL at a named point: `python -m tests.support.delivery_crash <lake> <point>`.

What is delivered lies in the log already. The session is lent: a delivery reads through Spark and writes in Python.

The environment variables TEST_POSTGRES and TEST_SECOND_POSTGRES, TEST_BUCKET and TEST_KAFKA hold the connection strings
of two databases, endpoint and name of a bucket, and the servers of a broker.
"""

from __future__ import annotations

import os
import signal
import sys

from streaming import Lake
from streaming.declare.delivery import Delivery
from streaming.operations.redeliver import redeliver_days
from streaming.service.delivering import Delivering
from streaming.service.lease import take_lease
from streaming.service.observer import Observer
from streaming.sinks.files import JsonLines
from streaming.sinks.kafka import KafkaTopic
from streaming.sinks.postgres import Postgres
from streaming.sinks.together import Together
from streaming.sinks.two_phase import TwoPhase
from tests.support.crash import Point, armed
from tests.support.delivering import pipeline, readings
from tests.support.instants import NOW, at
from tests.support.lent import borrowed_session
from tests.support.object_store import Bucket

CONNECTION, SECOND, BUCKET, SERVERS = "TEST_POSTGRES", "TEST_SECOND_POSTGRES", "TEST_BUCKET", "TEST_KAFKA"

_FILES, _POSTGRES = "streaming.sinks.files:FileSink", "streaming.sinks.postgres_sink:PostgresSink"
_ATTEMPTS, _OBJECTS = "streaming.sinks.files:Attempts", "streaming.sinks.object_store:ObjectStore"
_TOPIC, _PRODUCER = "streaming.sinks.kafka.sink:KafkaSink", "streaming.sinks.kafka.sink:RecordProducer"
_BOTH, _PREPARED = "streaming.sinks.two_phase_sink:TwoPhaseSink", "streaming.sinks.two_phase_sink:PreparedPostgres"
_LEDGER = "streaming.deliveries.ledger:LedgerTable"

# In the order in which one lake meets them: each attempt has one batch more to deliver, and begins with what the one
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
    "noted what objects will be put, none put": Point("", _ATTEMPTS, "begin", 2, after=True),
    "all objects put, no row sent": Point("", _OBJECTS, "put_each", 1, after=True),
    "both sent, the object of a refused row deleted, not committed": Point("", _OBJECTS, "remove", 2, after=True),
}

TOPIC_POINTS: dict[str, Point] = {
    "planned, nothing sent to the topic": Point("", _TOPIC, "deliver", 1),
    "records sent, nothing put aside": Point("", _PRODUCER, "send", 1, after=True),
    "records and progress sent, not committed": Point("", _PRODUCER, "commit", 1),
    "transaction committed, not noted here": Point("", _TOPIC, "deliver", 1, after=True),
}
"""The same for a topic, in a lake of its own."""

TWO_PHASE_POINTS: dict[str, tuple[Point, int]] = {
    "written in both, prepared in neither": (Point("", _POSTGRES, "advance", 2, after=True), 0),
    "prepared in the second": (Point("", _POSTGRES, "_prepare", 1, after=True), 1),
    "prepared in both": (Point("", _POSTGRES, "_prepare", 2, after=True), 2),
    # Its first two are those of the batch that the point before has left.
    "committed in the first": (Point("", _PREPARED, "end", 3, after=True), 1),
    "committed in both, not noted here": (Point("", _BOTH, "deliver", 1, after=True), 0),
}
"""Of a commit in two databases, in a lake of its own; and how many prepared transactions each leaves."""

DAY_POINTS: dict[str, Point] = {
    "a day again: rows of its second batch sent, not committed": Point("", _POSTGRES, "advance", 2, after=True),
    "a day again: that batch committed there, not noted here": Point("", _POSTGRES, "deliver", 1, after=True),
}
"""Of a delivery that repeats the day of all rows, two in a batch; each attempt goes on where the one before ended."""


def by_value(connection: str) -> Delivery:
    """Rows into a table with one for each value."""
    table = Postgres("k", key=("value",), connection=connection)
    return Delivery("by_value", readings, table, select=("id", "value"), batch=2)


def to_topic(servers: str) -> Delivery:
    """Rows into a topic of one partition, which takes none of those that ask for another."""
    asked = {"id": "id", "value": "value", "part": "case when value % 10 = 3 then 1 end"}
    return Delivery("to_topic", readings, KafkaTopic(servers, "crashes", partition="part"), select=asked)


def to_two(first: str, second: str) -> Delivery:
    """Rows into tables of two databases, each of which may refuse one."""
    databases = (Postgres("t", connection=first), Postgres("t", connection=second))
    return Delivery("to_two", readings, TwoPhase(databases), select=("id", "value"))


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
    """Deliver what there is, or the day again, and die."""
    root, name = sys.argv[1:]
    spark, lake = borrowed_session(), Lake(root)
    of_two = {name: point for name, (point, _) in TWO_PHASE_POINTS.items()}
    with armed((POINTS | TOPIC_POINTS | DAY_POINTS | of_two)[name], lambda: os.killpg(0, signal.SIGKILL)):
        if name in DAY_POINTS:
            again = by_value(os.environ[CONNECTION])
            redeliver_days(spark, lake, pipeline(again), again, [at(0).date()], now=lambda: NOW)
            return
        if name in TOPIC_POINTS:
            of = pipeline(to_topic(os.environ[SERVERS]))
        elif name in TWO_PHASE_POINTS:
            of = pipeline(to_two(os.environ[CONNECTION], os.environ[SECOND]))
        else:
            of = pipeline(*deliveries(os.environ[CONNECTION], os.environ[BUCKET]))
        with take_lease(lake, of):
            Delivering(spark, lake, of, Observer(lambda: NOW)).deliver_all()


if __name__ == "__main__":
    main()

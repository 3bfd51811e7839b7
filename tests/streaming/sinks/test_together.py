"""A row in a real Postgres and an object in a real store: both or neither, whatever is refused, away or killed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streaming import Lake
from streaming.audit.deliveries import reconcile
from streaming.base.errors import DeclarationError, SinkError
from streaming.declare.delivery import Delivery
from streaming.sinks.objects import Objects
from streaming.sinks.postgres import Postgres
from streaming.sinks.sink import REVISION, TIME, Delivered, NumberedBatch, RefusedRow
from streaming.sinks.together import Together
from tests.streaming.sinks.contract import LAWS, Arrivals, deliver
from tests.support.delivering import Courier, by_id, ingested, reading, readings
from tests.support.instants import T0
from tests.support.killed import Killed
from tests.support.object_store import Bucket, Front, front
from tests.support.postgres import rows, run

REFUSED = -1
TOO_LARGE = (400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")


@pytest.fixture
def store(bucket: Bucket) -> Iterator[Front]:
    """A front of the bucket's store."""
    with front(bucket.endpoint) as standing:
        yield standing


def both(postgres: str, store: Front, bucket: Bucket, **given: Any) -> Together:
    """The table `products` and objects below `out`."""
    objects = Bucket(store.endpoint, bucket.name).objects(by="none")
    return Together(Postgres("products", connection=postgres), objects, **given)


def named(postgres: str, bucket: Bucket) -> list[str]:
    """The keys of the objects that rows name."""
    urls = rows(postgres, "select blob from products order by 1")
    return [url.removeprefix(f"s3://{bucket.name}/out/") for (url,) in urls]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_both_together_keep_the_contract_of_targets(
    law: Callable[[Arrivals], None], lake: Lake, postgres: str, store: Front, bucket: Bucket
) -> None:
    run(postgres, "create table products (number bigint check (number >= 0), blob text not null unique)")

    def arrived() -> list[int]:
        records = rows(postgres, "select number from products order by blob")
        assert named(postgres, bucket) == bucket.names()
        assert [json.loads(bucket.content(key))["number"] for key in bucket.names()] == [row[0] for row in records]
        return [row[0] for row in records]

    law(Arrivals(both(postgres, store, bucket), lake, arrived, REFUSED))


def products(*ids: str, number: int = 0, generation: int = 0, **columns: list[Any]) -> NumberedBatch:
    times = pa.array([T0] * len(ids), pa.timestamp("us", "UTC"))
    table = pa.table({"id": list(ids), **columns, REVISION: pa.array([0] * len(ids), pa.int64()), TIME: times})
    return NumberedBatch("shop/all", generation, number, table)


def send(target: Together, batch: NumberedBatch) -> list[RefusedRow]:
    return deliver(target.connect(Lake("/nowhere"), Delivered("shop/all")), batch)


def test_x4_a_row_and_its_object_or_neither_and_what_one_refuses_among_the_dead_letters(
    spark: SparkSession, lake: Lake, postgres: str, store: Front, bucket: Bucket
) -> None:
    """p1 is taken by both, p2 violates a constraint of the table, and the store takes no object as large as p3's."""
    run(postgres, "create table products (id text check (id <> 'p2'), value bigint, blob text not null)")
    store.answer = lambda request: TOO_LARGE if request.method == "PUT" and b'"p3"' in request.body else None
    target = both(postgres, store, bucket)
    delivery = Delivery("both", readings, target, select=("id", "value"))
    ingested(spark, lake, [reading("p1", 1, 1), reading("p2", 2, 2), reading("p3", 3, 3)])
    courier = Courier(spark, lake, delivery)
    assert courier.deliver() == 1

    assert rows(postgres, "select id, value from products") == [("p1", 1)]
    (key,) = bucket.names()
    assert json.loads(bucket.content(key)) == {"id": "p1", "value": 1}
    assert named(postgres, bucket) == [key]
    dead = courier.runtime.dead_letters.pending(0, 0)
    assert [(json.loads(row["payload"])["id"], row["attempt"]) for row in dead] == [("p2", 1), ("p3", 1)]
    assert "violates check constraint" in dead[0]["error"]
    assert dead[1]["error"] == "EntityTooLarge: Your proposed upload exceeds the maximum allowed size."

    store.answer = lambda request: None
    run(postgres, "alter table products drop constraint products_id_check")
    courier.runtime.dead_letters.ask(0, 0)
    assert courier.deliver() == 1
    assert rows(postgres, "select id from products order by 1") == [("p1",), ("p2",), ("p3",)]
    assert named(postgres, bucket) == bucket.names()
    assert [finding.broken for finding in reconcile(spark, lake, delivery)] == [0, 0, 0]
    bucket.put("shop/readings-both-0-0000000009-0.json", b"nobody names it")
    assert [finding.broken for finding in reconcile(spark, lake, delivery)] == [0, 0, 1]


def test_x4_a_process_killed_between_upload_and_commit_leaves_one_row_and_one_object(
    postgres: str, store: Front, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = both(postgres, store, bucket)
    with monkeypatch.context() as dies, pytest.raises(Killed):
        dies.setattr("streaming.sinks.postgres_sink.PostgresSink.write", _killed)
        send(target, products("p1"))
    assert len(bucket.names()) == 1
    assert send(target, products("p1")) == []
    assert rows(postgres, "select id from products") == [("p1",)]
    assert named(postgres, bucket) == bucket.names()


def test_objects_of_a_batch_that_was_given_up_are_swept(
    postgres: str, store: Front, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies after the upload of its second batch, and somebody begins the delivery anew."""
    target = both(postgres, store, bucket)
    send(target, products("p1"))
    with monkeypatch.context() as dies, pytest.raises(Killed):
        dies.setattr("streaming.sinks.postgres_sink.PostgresSink.write", _killed)
        send(target, products("p2", "p3", number=1))
    assert len(bucket.names()) == 3
    send(target, products("p2", generation=1))
    assert rows(postgres, "select id from products order by 1") == [("p1",), ("p2",)]
    assert named(postgres, bucket) == bucket.names()


@pytest.mark.parametrize("away", ["store", "token", "database"])
def test_while_one_of_the_two_is_away_no_reader_sees_anything_of_the_batch(
    away: str, postgres: str, store: Front, bucket: Bucket
) -> None:
    target = both(postgres, store, bucket)
    send(target, products("p0"))

    answers = {"store": (503, "SlowDown", "Slow."), "token": (400, "ExpiredToken", "The provided token has expired.")}
    if away in answers:
        store.answer = lambda request: answers[away] if b'"p2"' in request.body else None
    else:
        run(postgres, "alter table products rename to elsewhere", "create table products (id int[])")
    with pytest.raises(SinkError):
        send(target, products("p1", "p2", number=1))
    store.answer = lambda request: None
    if away == "database":
        run(postgres, "drop table products", "alter table elsewhere rename to products")
    assert rows(postgres, "select id from products") == [("p0",)]
    send(target, products("p1", "p2", number=1))
    assert rows(postgres, "select id from products order by 1") == [("p0",), ("p1",), ("p2",)]
    assert named(postgres, bucket) == bucket.names()


def test_a_column_can_be_what_is_in_the_object_and_is_not_in_the_table_then(
    postgres: str, store: Front, bucket: Bucket
) -> None:
    target = both(postgres, store, bucket, content="scan")
    (refused,) = send(target, products("p1", "p2", scan=[b"\x00\xff", None]))
    assert refused == RefusedRow(1, "The column of the object's content is null.")
    assert [bucket.content(key) for key in bucket.names()] == [b"\x00\xff"]
    query = "select column_name from information_schema.columns where table_name = 'products' order by 1"
    assert rows(postgres, query) == [("blob",), ("id",)]
    with pytest.raises(SinkError, match="column 'scan', is not delivered; columns are: id"):
        send(target, products("p3", number=1))
    with pytest.raises(SinkError, match="column 'blob' is delivered, and is to name the object"):
        send(both(postgres, store, bucket), products("p3", number=1, blob=["mine"]))


def test_what_would_leave_objects_behind_is_refused() -> None:
    objects = Objects("s3://bucket/out")
    with pytest.raises(DeclarationError, match=r"key=\('id',\) of table 't' would replace rows"):
        Together(Postgres("t", key=("id",)), objects)
    with pytest.raises(DeclarationError, match="sends upserts and deletes, which Together cannot take"):
        Delivery("both", by_id, Together(Postgres("t"), objects), "current")
    with pytest.raises(DeclarationError, match="asks Together to keep one row per key"):
        Delivery("both", readings, Together(Postgres("t"), objects), key=("id",))


def _killed(*args: Any) -> None:
    raise Killed

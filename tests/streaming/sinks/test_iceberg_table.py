"""Iceberg tables: one snapshot a batch, in catalogs of a file and of a Postgres, and no secret in a declaration."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, NestedField, StringType, UUIDType
from thrift.transport.TTransport import TTransportException

from streaming import IcebergTable, Lake
from streaming.base import Dataset
from streaming.base.errors import DeclarationError, SinkError
from streaming.sinks.sink import REVISION, Delivered, NumberedBatch, RefusedRow
from streaming.sinks.table_rows import Bounds
from tests.streaming.sinks.contract import LAWS, TRANSACTIONAL_LAWS, Arrivals, deliver
from tests.support.object_store import Bucket
from tests.support.tables_of_files import IcebergPlace, in_file

NOWHERE = Lake("/nowhere")


@pytest.fixture
def place(lake: Lake) -> IcebergPlace:
    return in_file(lake)


def send(place: IcebergPlace, number: int, *given: dict[str, Any], key: tuple[str, ...] = ()) -> list[RefusedRow]:
    sink = place.target(key=key).connect(NOWHERE, Delivered("shop/all", "here", key))
    return deliver(sink, NumberedBatch("shop/all", 0, number, pa.Table.from_pylist(list(given))))


def row(id_: int, name: str | None, revision: int = 0) -> dict[str, Any]:
    return {"id": id_, "name": name, REVISION: revision}


@pytest.mark.parametrize("law", [*LAWS, *TRANSACTIONAL_LAWS], ids=lambda law: law.__name__)
def test_a_catalog_in_postgres_keeps_the_contract_of_targets(
    law: Callable[[Arrivals], None], lake: Lake, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = dict(part.split("=", 1) for part in postgres.split())
    monkeypatch.setenv("CATALOG_USER", given["user"])
    uri = f"postgresql+psycopg://${{CATALOG_USER}}@{given['host']}:{given['port']}/{given['dbname']}"
    properties = {**in_file(lake).properties, "uri": uri}
    target = IcebergTable("shop.numbers", properties, ("number",))
    place = IcebergPlace({**properties, "uri": uri.replace("${CATALOG_USER}", given["user"])})
    assert target.address == f"postgresql+psycopg://{given['host']}:{given['port']}/{given['dbname']}: shop.numbers"
    law(Arrivals(target, NOWHERE, lambda: [row[0] for row in place.rows("number")]))


def test_a_table_may_lie_on_s3(lake: Lake, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAREHOUSE_SECRET", "hunter2")
    properties = {
        **in_file(lake).properties,
        "warehouse": f"s3://{bucket.name}/warehouse",
        "s3.endpoint": bucket.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": "AKIA-WRITER",
    }
    target = IcebergTable("shop.numbers", {**properties, "s3.secret-access-key": "${WAREHOUSE_SECRET}"}, ("id",))
    for number in range(2):
        rows = pa.Table.from_pylist([row(1, "a", number), row(2, "b" * number, number)])
        sink = target.connect(NOWHERE, Delivered("shop/all", "here", ("id",)))
        deliver(sink, NumberedBatch("shop/all", 0, number, rows))
    place = IcebergPlace({**properties, "s3.secret-access-key": "hunter2"})
    assert place.rows("id", "name") == [(1, "a"), (2, "b")]
    assert [name for name in bucket.names("warehouse/") if name.endswith(".parquet")]


def test_a_batch_is_one_snapshot_that_says_which_and_the_progress_outlives_it(place: IcebergPlace) -> None:
    for number in range(3):
        send(place, number, row(1, "a", number), row(number, "b"), key=("id",))
    table = place.open()
    said = [
        (snapshot.summary["tidemark.delivery"], snapshot.summary["tidemark.batch"]) for snapshot in table.snapshots()
    ]
    assert said == [("shop/all", "0"), ("shop/all", "1"), ("shop/all", "2")]
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in table.snapshots()[:-1]]).commit()
    assert place.target().connect(NOWHERE, Delivered("shop/all", "here")).delivered_through(0) == 2
    send(place, 3, row(3, "c"), key=("id",))
    assert place.rows("id", "name") == [(0, "b"), (1, "a"), (2, "b"), (3, "c")]


def test_what_somebody_else_writes_meanwhile_is_replaced_too(place: IcebergPlace) -> None:
    send(place, 0, row(1, "first"), row(2, "first"), key=("id",))
    sink = place.target(key=("id",)).connect(NOWHERE, Delivered("shop/all", "here", ("id",)))
    looks = 0

    def meanwhile(refused: object) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            place.open().append(pa.Table.from_pylist([row(3, "theirs"), row(4, "theirs", 9)]))

    rows = pa.Table.from_pylist([row(id_, "second", 1) for id_ in (2, 3, 4)])
    sink.deliver(NumberedBatch("shop/all", 0, 1, rows), meanwhile)
    assert place.rows("id", "name") == [(1, "first"), (2, "second"), (3, "second"), (4, "theirs")]
    assert looks == 2


@pytest.mark.parametrize("key", [(), ("id",)])
def test_of_two_processes_that_have_both_looked_the_second_leaves_the_batch_of_the_first(
    key: tuple[str, ...], place: IcebergPlace
) -> None:
    """PyIceberg by itself would append the rows once more, behind the first."""
    send(place, 0, row(1, "a"), key=key)
    delivered = Delivered("shop/all", "here", key)
    follows = NumberedBatch("shop/all", 0, 1, pa.Table.from_pylist([row(2, "b")]))

    def meanwhile(refused: object) -> None:
        deliver(place.target(key=key).connect(NOWHERE, delivered), follows)

    place.target(key=key).connect(NOWHERE, delivered).deliver(follows, meanwhile)
    assert place.rows("id", "name") == [(1, "a"), (2, "b")]
    assert len(place.open().snapshots()) == 2


def test_a_table_of_somebody_else_with_partitions_and_what_is_not_known_here_is_taken(place: IcebergPlace) -> None:
    columns = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(2, "name", StringType()),
        NestedField(3, "ticket", UUIDType()),
    )
    catalog = load_catalog("default", **place.properties)
    catalog.create_namespace("shop")
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "bucket"))
    catalog.create_table("shop.numbers", columns, partition_spec=spec)
    catalog.close()
    send(place, 0, *(row(id_, "first") for id_ in range(10)), key=("id",))
    send(place, 1, row(7, "second", 1), row(8, "second", -1), key=("id",))
    assert place.rows("id", "name") == [(id_, "second" if id_ == 7 else "first") for id_ in range(10)]
    nobody = pa.Table.from_pylist([{"id": None, "name": "x", REVISION: 0}, row(11, "y")])
    sink = place.target(key=("id",)).connect(NOWHERE, Delivered("shop/all", "here", ("id",)))
    (refused,) = deliver(sink, NumberedBatch("shop/all", 0, 2, nobody))
    assert (refused.position, "the column 'id' is null" in refused.error) == (0, True)
    assert sink.count() == 11


def test_files_without_a_key_of_the_batch_are_not_read(place: IcebergPlace) -> None:
    for number in range(3):
        send(place, number, row(10 * number, "a"), row(10 * number + 9, "b"), key=("id",))
    table = place.target().connect(NOWHERE, Delivered("shop/all", "here")).open()  # type: ignore[attr-defined]
    assert [len(table.files(Bounds("id", *ends))) for ends in ((0, 5), (9, 10), (30, 40), (-5, 40))] == [1, 2, 0, 3]
    assert [len(table.files(Bounds("name", *ends))) for ends in (("a", "a"), ("c", "d"))] == [3, 0]


def test_a_catalog_that_is_away_is_waited_for_and_told(lake: Lake, place: IcebergPlace) -> None:
    away = IcebergPlace({**place.properties, "uri": f"sqlite:///{lake.root}/later/catalog.db"})
    with pytest.raises(SinkError, match=r"catalog\.db: shop\.numbers: .*unable to open database file.* sent again by"):
        send(away, 0, row(1, "a"))
    send(place, 0, row(1, "a"))


@pytest.mark.parametrize(
    "error",
    [
        NoCredentialsError(),
        EndpointConnectionError(endpoint_url="https://glue.example"),
        ClientError({"Error": {"Code": "ExpiredTokenException", "Message": "The token has expired"}}, "GetTable"),
        TTransportException(message="Could not connect to the metastore"),
        CommitStateUnknownException("The answer to the commit was lost"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_client_of_a_catalog_raises_is_waited_for_and_told(error: Exception, place: IcebergPlace) -> None:
    sink = place.target().connect(NOWHERE, Delivered("shop/all", "here"))
    with (
        pytest.raises(
            SinkError, match=r"shop\.numbers: .*; the batch is sent again by itself, and is there once\."
        ) as told,
        sink.telling(),  # type: ignore[attr-defined]
    ):
        raise error
    assert str(error).rstrip(".") in str(told.value)


def test_glue_without_a_region_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    target = IcebergTable("shop.numbers", {"type": "glue"})
    with pytest.raises(SinkError, match=r"glue: shop\.numbers: You must specify a region"):
        target.connect(NOWHERE, Delivered("shop/all", "here")).delivered_through(0)


def test_a_variable_that_is_not_set_is_named(place: IcebergPlace) -> None:
    target = IcebergTable("shop.numbers", {**place.properties, "s3.secret-access-key": "${NOT_SET_AT_ALL}"})
    with pytest.raises(
        SinkError, match=r"the options of IcebergTable 'shop\.numbers' name the variable 'NOT_SET_AT_ALL'"
    ):
        target.connect(NOWHERE, Delivered("shop/all")).delivered_through(0)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"name": "orders"}, "name='orders' of IcebergTable names no table in a namespace; write 'shop.orders'"),
        ({"catalog": {"s3.secret-access-key": "hunter2"}}, "property 's3.secret-access-key' of .* holds a secret"),
        ({"catalog": {"token": "a${B}hunter2"}}, "property 'token' of IcebergTable 'shop.orders' holds a secret"),
        ({"catalog": {"uri": "postgresql://etl:hunter2@db/x"}}, "property 'uri' of .* holds a secret"),
        ({"catalog": {"uri": "postgresql://etl:hun/ter2@db/x"}}, "property 'uri' of .* holds a secret"),
        ({"catalog": {"uri": "postgresql://${A}:${B}@db@hunter2@db/x"}}, "property 'uri' of .* holds a secret"),
        (
            {"catalog": {"uri": "postgresql+psycopg://db/catalog?user=etl&password=hunter2"}},
            r"property 'uri' of IcebergTable 'shop.orders' is a URI with '\?'.* such as '\$\{CATALOG_URI\}'",
        ),
        ({"catalog": {"s3.endpoint": "https://store#hunter2"}}, "property 's3.endpoint' of .* is a URI with '#'"),
        ({"catalog": {"header.Authorization": "Bearer hunter2"}}, "property 'header.Authorization' of .* a secret"),
        ({"catalog": {"header.X-Api-Key": "hunter2"}}, "property 'header.X-Api-Key' of .* holds a secret"),
        ({"catalog": {"port": 1}}, "'port' in catalog of IcebergTable 'shop.orders' is 1, a int"),
        ({"mode": "append", "key": ("id",)}, "asks for one row of a key, and mode='append' for every row"),
    ],
)
def test_what_is_no_table_and_what_is_secret_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(DeclarationError, match=reason) as error:
        IcebergTable(**{"name": "shop.orders", **given})
    assert "hunter2" not in str(error.value) and "ter2" not in str(error.value)


def test_a_target_is_a_value_and_a_variable_is_no_secret() -> None:
    target = IcebergTable("shop.orders", {"uri": "postgresql://etl:${PASSWORD}@db/x", "token": "${TOKEN}"}, ("id",))
    assert pickle.loads(pickle.dumps(target)) == target
    assert {target: 1}[IcebergTable("shop.orders", dict(target.catalog), ("id",))] == 1
    assert target.address == "postgresql://db/x: shop.orders"


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        (
            "postgresql+psycopg://${USER}:${PASSWORD}@db.example:5432/catalog",
            "postgresql+psycopg://db.example:5432/catalog",
        ),
        ("http://etl@[::1]:8181/api", "http://[::1]:8181/api"),
        ("sqlite:////data/at@home/catalog.db", "sqlite:////data/at@home/catalog.db"),
        ("thrift://one:9083,thrift://two:9083", "thrift://one:9083,thrift://two:9083"),
        ("${CATALOG_URI}", "${CATALOG_URI}"),
    ],
)
def test_an_address_is_scheme_host_port_and_path(uri: str, place: str) -> None:
    target = IcebergTable("shop.orders", {"uri": uri})
    assert target.address == f"{place}: shop.orders"
    assert target.datasets(NOWHERE) == (Dataset(place, "shop.orders"),)

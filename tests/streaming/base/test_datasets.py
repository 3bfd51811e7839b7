from __future__ import annotations

import pytest

from streaming import Console, DeltaTable, Files, IcebergTable, JsonLines, Kafka, KafkaTopic, Postgres, Rest, Then
from streaming.base import Dataset, dataset_at
from streaming.lake import Lake

LAKE = Lake("/lake")


@pytest.mark.parametrize(
    ("location", "namespace", "name"),
    [
        ("/lake/flights/log/", "file", "/lake/flights/log"),
        ("file:/lake/log", "file", "/lake/log"),
        ("file:///lake/log", "file", "/lake/log"),
        ("file://nas/lake/log", "file://nas", "/lake/log"),
        ("s3a://bucket/lake/log", "s3://bucket", "lake/log"),
        ("s3://bucket", "s3://bucket", "/"),
        ("s3n://KEY:SEC@RET@bucket/a", "s3://bucket", "a"),
        ("gs://bucket/lake", "gs://bucket", "lake"),
        ("abfss://box@account.dfs.core.windows.net/lake", "abfss://box@account.dfs.core.windows.net", "/lake"),
        ("hdfs://name:8020/lake", "hdfs://name:8020", "/lake"),
        ("https://user:secret@host:8443/orders?token=secret", "https://host:8443", "/orders"),
    ],
)
def test_a_location_has_the_namespace_and_name_of_the_naming_specification(
    location: str, namespace: str, name: str
) -> None:
    assert dataset_at(location) == Dataset(namespace, name)


@pytest.mark.parametrize(
    "location", ["generator://acme.row", "standard output", "", "https://[broken", "s3://", "s3://KEY:SECRET@"]
)
def test_what_has_no_naming_is_no_dataset(location: str) -> None:
    assert dataset_at(location) is None


def test_sources_and_targets_name_their_topics_tables_and_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGDATABASE"):
        monkeypatch.delenv(name, raising=False)
    kafka = Kafka("b1:9092,b2:9092", topics=("orders", "refunds"))
    orders, refunds = (Dataset("kafka://b1:9092", topic) for topic in ("orders", "refunds"))
    assert kafka.datasets(LAKE) == (orders, refunds)
    history = Files("landing/orders")
    landing = Dataset("file", "/lake/landing/orders")
    assert Then(history, kafka).datasets(LAKE) == (landing, orders, refunds)
    assert KafkaTopic("b1:9092", "orders").datasets(LAKE) == (orders,)
    assert KafkaTopic("b1:9092", topic_column="kind").datasets(LAKE) == ()
    assert JsonLines("out/orders").datasets(LAKE) == (Dataset("file", "/lake/out/orders"),)
    assert Rest("https://host:8443/services/secret").datasets(LAKE) == (Dataset("https://host:8443", "/"),)
    assert Console().datasets(LAKE) == ()
    assert DeltaTable("s3://bucket/orders").datasets(LAKE) == (Dataset("s3://bucket", "orders"),)
    iceberg = IcebergTable("shop.orders", {"type": "sql", "uri": "postgresql+psycopg://etl:${PW}@db/catalog"})
    assert iceberg.datasets(LAKE) == (Dataset("postgresql+psycopg://db/catalog", "shop.orders"),)
    shop = Postgres("shop.orders", connection="host=db,other port=5433 dbname=store")
    assert shop.datasets(LAKE) == (Dataset("postgres://db:5433", "store.shop.orders"),)
    monkeypatch.setenv("PGHOST", "elsewhere")
    monkeypatch.setenv("PGDATABASE", "store")
    assert Postgres("orders").datasets(LAKE) == (Dataset("postgres://elsewhere:5432", "store.public.orders"),)

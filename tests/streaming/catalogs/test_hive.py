"""The Hive metastore, on a real one."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from platform_assets.demo.feeds import free_port
from streaming.base.errors import CatalogError, SettingsError
from streaming.catalogs import CatalogColumn, TableEntry
from streaming.catalogs.hive import HiveCatalog
from tests.streaming.catalogs.contract import LAWS, TABLES, Registry, a_lake


@pytest.fixture
def registry(hive_metastore: str, tmp_path: Path) -> Registry:
    return Registry(lambda: HiveCatalog(hive_metastore), f"s{uuid4().hex}", a_lake(tmp_path))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_the_hive_metastore_keeps_the_contract_of_catalogs(law: Callable[[Registry], None], registry: Registry) -> None:
    law(registry)


def test_spark_and_trino_find_a_delta_table_there(registry: Registry) -> None:
    registry.sync()
    with HiveCatalog(registry.open().address) as catalog:
        table = catalog._table(registry.schema, "hourly")
    assert table is not None and table.sd is not None and table.sd.serdeInfo is not None
    assert (table.tableType, table.owner) == ("EXTERNAL_TABLE", "team:doors")
    assert table.parameters["spark.sql.sources.provider"] == "delta" and table.parameters["EXTERNAL"] == "TRUE"
    assert table.sd.serdeInfo.parameters["path"] == f"file://{registry.lake.root}/doors/hourly"
    assert [(column.name, column.type) for column in table.sd.cols if column.name in ("local", "n")] == [
        ("n", "bigint"),
        ("local", "timestamp"),
    ]


BY_NAME = """
import sys
from pyspark.sql import SparkSession
from streaming.spark import spark_jars
url, schema = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", ",".join(map(str, spark_jars())))
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.databricks.delta.snapshotPartitions", "1")
    .config("spark.sql.catalogImplementation", "hive")
    .config("spark.hadoop.hive.metastore.uris", url)
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .getOrCreate()
)
print(sorted(row.tableName for row in spark.sql(f"show tables in {schema}").collect()))
print(spark.sql(f"select `Tür 1`, `a-b`.`c d`, _day from {schema}.wide").collect())
spark.stop()
"""
"""A program of somebody who has Spark and Delta, and nothing of ours but the jars."""


@pytest.mark.long
def test_spark_reads_tables_of_the_lake_by_the_names_that_the_metastore_has(registry: Registry) -> None:
    registry.sync()
    command = [sys.executable, "-c", BY_NAME, registry.open().address, registry.schema]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-2:] == [
        str(TABLES),
        "[Row(Tür 1='a', c d=1, _day=datetime.date(2026, 1, 5))]",
    ]


def test_a_comment_that_the_metastore_has_no_room_for_is_cut_and_agrees(registry: Registry) -> None:
    entry = TableEntry(registry.schema, "t", "file:///x", (CatalogColumn("Name", "timestamp_ntz", "m" * 300),))
    with registry.open() as catalog:
        held = catalog.as_held(entry)
        catalog.create_schema(registry.schema, {})
        catalog.create(held)
        assert catalog.tables(registry.schema)["t"].columns == held.columns
    assert held.columns == (CatalogColumn("name", "timestamp", "m" * 253 + "..."),)


def test_a_refusal_of_the_metastore_is_told_with_what_to_do(registry: Registry) -> None:
    entry = TableEntry(registry.schema, "t", "file:///x", (CatalogColumn("name", "no_type_of_hives"),))
    with registry.open() as catalog, pytest.raises(CatalogError, match=r"Invalid column type.*run the command again"):
        catalog.create_schema(registry.schema, {})
        catalog.create(entry)


def test_a_metastore_that_is_away_is_named(tmp_path: Path) -> None:
    port = free_port()
    registry = Registry(lambda: HiveCatalog(f"thrift://127.0.0.1:{port}"), "s", a_lake(tmp_path))
    with pytest.raises(CatalogError, match=f"the hive catalog at thrift://127.0.0.1:{port} cannot be reached"):
        registry.sync()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:9083", "http://host:9083"),
        ("host:9083", "host://"),
        ("thrift://user:sesame@host:1", "thrift://host:1"),
        ("thrift://:sesame@host", "thrift://host"),
        ("thrift://host:sesame", "a URL that cannot be read"),
        ("thrift://host:70000", "a URL that cannot be read"),
        ("thrift://[host", "a URL that cannot be read"),
    ],
)
def test_what_is_no_address_of_a_metastore_is_refused(url: str, shown: str) -> None:
    refused = re.escape(f"({shown}) is no address of a Hive metastore; write thrift://host:9083, without a user")
    with pytest.raises(SettingsError, match=refused) as raised:
        HiveCatalog(url)
    assert "sesame" not in str(raised.value)
